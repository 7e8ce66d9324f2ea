//! Answer to a scrape: its client does not wait for the end of the figures.

use super::Format;
use crate::api::{Result, SystemState};
use crate::http::body::Body;
use crate::http::routes::{blocking, reply};
use crate::time_slices::drop_state;
use hyper::Response;

/// State of a page, which is dropped in slices, also when the client has disappeared.
struct PageState(SystemState);

impl Drop for PageState {
    fn drop(&mut self) {
        drop_state(std::mem::take(&mut self.0));
    }
}

/// Answers with a page that `render` makes on a thread that may block. The state of the page is
/// dropped while the page is sent, and `turn` after it.
pub(in crate::http) async fn answer<T: Send + 'static>(
    render: impl FnOnce() -> Result<(Vec<u8>, SystemState)> + Send + 'static,
    format: Format,
    turn: T,
) -> Result<Response<Body>> {
    // The page is rendered, and the turn kept, to the end even when the client disappears.
    let rendered = blocking(move || {
        let (page, state) = render()?;
        Ok((page, (PageState(state), turn)))
    });
    let (page, used) = rendered.await?;
    tokio::task::spawn_blocking(move || drop(used));
    Ok(reply(format.content_type(), page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver};

    /// A turn that ends when the test lets it.
    struct Held(Receiver<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn client_has_its_page_before_the_figures_are_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (release, held) = mpsc::channel();
        let render = || Ok((b"page".to_vec(), SystemState::default()));
        let response = runtime.block_on(answer(render, Format::Text, Held(held)));
        let body = response.expect("an answer").into_body();
        assert!(matches!(body, Body::Full(Some(page)) if page == "page"));
        drop(release);
    }
}
