//! Files of `[api]` and `[[webhook]]`. The control side reads them, and a plan compares them with
//! those on disk, as it does those of other sections.

use mgmt::plan::{Action, FileSection};

use super::Daemon;
use super::opening::open_deadline;
use crate::mailbox::Query;
use crate::within::{Subject, within};

/// The sections whose files the control side reads once an action is carried out.
fn sections_of(action: &Action) -> Vec<FileSection> {
    match action {
        Action::Api { .. } => vec![FileSection::Api],
        Action::Webhooks { from, to } => {
            let edited = to.iter().filter(|hook| !from.contains(hook));
            let is_gone = |name: &str| !to.iter().any(|hook| hook.name == name);
            let gone = from.iter().filter(|hook| is_gone(&hook.name));
            edited.chain(gone).map(|hook| FileSection::Webhook(hook.name.clone())).collect()
        }
        Action::Renew { of: of @ (FileSection::Api | FileSection::Webhook(_)) } => vec![of.clone()],
        _ => Vec::new(),
    }
}

impl Daemon {
    /// An action was carried out. Files that do not answer refuse nothing, since the control side
    /// serves without them: they are recorded when they answer.
    pub(super) fn note_control_files(&self, action: &Action) {
        let sections = sections_of(action);
        if sections.is_empty() {
            return;
        }
        let Ok(config) = self.mailbox.query(Query::Config) else { return };
        let names = sections.iter().map(FileSection::name);
        let subject = Subject::objects("read files in use", names);
        let (files, limit) = (self.files.clone(), open_deadline(self.registry.login_gate()));
        within(limit, &subject, move || files.set_control(&sections, &config));
    }
}

#[cfg(test)]
mod tests {
    use mgmt::config::read;

    use super::*;
    use crate::catalog::catalog;

    #[test]
    fn files_of_edited_and_removed_webhooks_are_noted() {
        let hook = |name: &str, port: u16| {
            let text = format!("[[webhook]]\nname = '{name}'\nurl = 'http://127.0.0.1:{port}/'\n");
            let config = read(&text, "a.toml", &catalog()).unwrap();
            config.webhook.into_iter().next().unwrap()
        };
        let from = vec![hook("same", 1), hook("edited", 1), hook("gone", 1)];
        let to = vec![hook("same", 1), hook("edited", 2), hook("new", 1)];
        let noted = sections_of(&Action::Webhooks { from, to });
        let name = |of: &FileSection| of.to_string();
        let noted: Vec<String> = noted.iter().map(name).collect();
        assert_eq!(noted, ["webhook edited", "webhook new", "webhook gone"]);
    }
}
