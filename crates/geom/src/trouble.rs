//! What is not as it should be with a geom, and what happens to it: for `status` and the journal.

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Grade {
    /// As it should be.
    #[default]
    Good,
    /// It works, with less than it should have, or not for ever.
    Degraded,
    /// It does not work.
    Failed,
}

/// Something that is not as it should be, as long as it is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// How bad it is.
    pub grade: Grade,
    /// What is wrong, naming the member or the place.
    pub why: String,
    /// What to do about it: the commands to type, or that there is nothing to do.
    pub action: String,
}

impl Trouble {
    /// It is as it was asked for, and somebody may wonder all the same.
    pub fn noted(why: impl Into<String>, action: impl Into<String>) -> Trouble {
        Trouble { grade: Grade::Good, why: why.into(), action: action.into() }
    }

    /// It works, but not as it should.
    pub fn degraded(why: impl Into<String>, action: impl Into<String>) -> Trouble {
        Trouble { grade: Grade::Degraded, why: why.into(), action: action.into() }
    }

    /// It does not work.
    pub fn failed(why: impl Into<String>, action: impl Into<String>) -> Trouble {
        Trouble { grade: Grade::Failed, why: why.into(), action: action.into() }
    }
}

/// Something that happened to a geom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark<'a> {
    /// Its class.
    pub class: &'static str,
    /// Its name.
    pub name: &'a str,
    /// How it is now, as far as this goes.
    pub grade: Grade,
    /// What happened.
    pub text: &'a str,
}

/// Who hears remarks, on the thread of the graph: it must not wait for anything.
pub type Listener = Box<dyn FnMut(&Remark<'_>) + Send>;
