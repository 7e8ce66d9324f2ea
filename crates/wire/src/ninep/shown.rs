//! Messages as people read them, in the form of fcall(2): a trace of them. Data are counted, never
//! shown.

use std::fmt::{self, Display, Formatter};

use super::message::{R, T};
use super::stat::{Qid, Stat, qtype};

impl Display for Qid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "({:016x} {} ", self.path, self.version)?;
        let letters = [(qtype::DIR, 'd'), (qtype::APPEND, 'a'), (qtype::EXCL, 'l')];
        let letters = letters.into_iter().chain([(qtype::AUTH, 'A'), (qtype::TMP, 't')]);
        for (_, letter) in letters.filter(|(bit, _)| self.kind & bit != 0) {
            write!(f, "{letter}")?;
        }
        f.write_str(")")
    }
}

impl Display for Stat<'_> {
    /// Fields that a wstat leaves unchanged are omitted.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let keep = Stat::KEEP;
        f.write_str("stat")?;
        for (what, text) in
            [("name", self.name), ("uid", self.uid), ("gid", self.gid), ("muid", self.muid)]
        {
            if !text.is_empty() {
                write!(f, " {what} {text:?}")?;
            }
        }
        if self.qid != keep.qid {
            write!(f, " qid {}", self.qid)?;
        }
        if self.mode != keep.mode {
            write!(f, " mode {:o}", self.mode)?;
        }
        if self.length != keep.length {
            write!(f, " length {}", self.length)?;
        }
        for (what, time) in [("atime", self.atime), ("mtime", self.mtime)] {
            if time != keep.mtime {
                write!(f, " {what} {time}")?;
            }
        }
        Ok(())
    }
}

impl Display for T<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            T::Version { msize, version } => {
                write!(f, "Tversion msize {msize} version {version:?}")
            }
            T::Auth { afid, uname, aname } => {
                write!(f, "Tauth afid {afid} uname {uname:?} aname {aname:?}")
            }
            T::Attach { fid, afid, uname, aname } => {
                write!(f, "Tattach fid {fid} afid {} ", *afid as i32)?;
                write!(f, "uname {uname:?} aname {aname:?}")
            }
            T::Flush { oldtag } => write!(f, "Tflush oldtag {oldtag}"),
            T::Walk { fid, newfid, names } => {
                write!(f, "Twalk fid {fid} newfid {newfid}")?;
                names.as_slice().iter().try_for_each(|name| write!(f, " {name:?}"))
            }
            T::Open { fid, mode } => write!(f, "Topen fid {fid} mode {mode:#x}"),
            T::Create { fid, name, perm, mode } => {
                write!(f, "Tcreate fid {fid} name {name:?} perm {perm:o} mode {mode:#x}")
            }
            T::Read { fid, offset, count } => {
                write!(f, "Tread fid {fid} offset {offset} count {count}")
            }
            T::Write { fid, offset, count } => {
                write!(f, "Twrite fid {fid} offset {offset} count {count}")
            }
            T::Clunk { fid } => write!(f, "Tclunk fid {fid}"),
            T::Remove { fid } => write!(f, "Tremove fid {fid}"),
            T::Stat { fid } => write!(f, "Tstat fid {fid}"),
            T::Wstat { fid, stat } => write!(f, "Twstat fid {fid} {stat}"),
        }
    }
}

impl Display for R<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            R::Version { msize, version } => {
                write!(f, "Rversion msize {msize} version {version:?}")
            }
            R::Auth { aqid } => write!(f, "Rauth aqid {aqid}"),
            R::Attach { qid } => write!(f, "Rattach qid {qid}"),
            R::Error { ename } => write!(f, "Rerror {ename:?}"),
            R::Flush => f.write_str("Rflush"),
            R::Walk { qids } => {
                write!(f, "Rwalk {}", qids.len())?;
                qids.iter().try_for_each(|qid| write!(f, " {qid}"))
            }
            R::Open { qid, iounit } => write!(f, "Ropen qid {qid} iounit {iounit}"),
            R::Create { qid, iounit } => write!(f, "Rcreate qid {qid} iounit {iounit}"),
            R::Read { data } => write!(f, "Rread count {}", data.len()),
            R::Write { count } => write!(f, "Rwrite count {count}"),
            R::Clunk => f.write_str("Rclunk"),
            R::Remove => f.write_str("Rremove"),
            R::Stat { stat } => write!(f, "Rstat {stat}"),
            R::Wstat => f.write_str("Rwstat"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NOFID, Names};
    use super::*;

    #[test]
    fn messages_are_shown_as_text_with_data_lengths_only() {
        let qid = Qid { kind: qtype::DIR | qtype::TMP, version: 7, path: 0x1f };
        let shown = [
            (
                T::Attach { fid: 0, afid: NOFID, uname: "ann", aname: "" }.to_string(),
                r#"Tattach fid 0 afid -1 uname "ann" aname """#,
            ),
            (
                T::Walk { fid: 1, newfid: 2, names: Names::new(&["a", "b\n"]).unwrap() }
                    .to_string(),
                r#"Twalk fid 1 newfid 2 "a" "b\n""#,
            ),
            (T::Write { fid: 3, offset: 4, count: 5 }.to_string(), "Twrite fid 3 offset 4 count 5"),
            (
                T::Wstat { fid: 3, stat: Stat { mode: 0o644, ..Stat::KEEP } }.to_string(),
                "Twstat fid 3 stat mode 644",
            ),
            (R::Walk { qids: vec![qid] }.to_string(), "Rwalk 1 (000000000000001f 7 dt)"),
            (R::Read { data: b"secret" }.to_string(), "Rread count 6"),
            (R::Error { ename: "it's \u{7}" }.to_string(), r#"Rerror "it's \u{7}""#),
        ];
        for (is, wanted) in shown {
            assert_eq!(is, wanted);
        }
    }
}
