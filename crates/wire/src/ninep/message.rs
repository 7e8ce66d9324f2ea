//! Requests and replies.

use super::stat::{Qid, Stat};
use super::{Fields, HEAD, WALK_MAX, WRITE_HEAD, kind, put_text};
use crate::error::{Kind, WireError};

/// Names of a walk: at most 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    names: [&'a str; WALK_MAX],
    len: usize,
}

impl<'a> Names<'a> {
    /// Of these; `None` when there are too many.
    pub fn new(names: &[&'a str]) -> Option<Names<'a>> {
        let mut out = Names { names: [""; WALK_MAX], len: names.len() };
        out.names.get_mut(..names.len())?.copy_from_slice(names);
        Some(out)
    }

    /// They.
    pub fn as_slice(&self) -> &[&'a str] {
        self.names.get(..self.len).unwrap_or(&[])
    }
}

/// A request. Fields are named as in the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum T<'a> {
    Version {
        msize: u32,
        version: &'a str,
    },
    Auth {
        afid: u32,
        uname: &'a str,
        aname: &'a str,
    },
    Attach {
        fid: u32,
        afid: u32,
        uname: &'a str,
        aname: &'a str,
    },
    Flush {
        oldtag: u16,
    },
    Walk {
        fid: u32,
        newfid: u32,
        names: Names<'a>,
    },
    Open {
        fid: u32,
        mode: u8,
    },
    Create {
        fid: u32,
        name: &'a str,
        perm: u32,
        mode: u8,
    },
    Read {
        fid: u32,
        offset: u64,
        count: u32,
    },
    /// Its `count` bytes of data are behind the head.
    Write {
        fid: u32,
        offset: u64,
        count: u32,
    },
    Clunk {
        fid: u32,
    },
    Remove {
        fid: u32,
    },
    Stat {
        fid: u32,
    },
    Wstat {
        fid: u32,
        stat: Stat<'a>,
    },
}

impl<'a> T<'a> {
    /// From a whole message of this size. Data of a Twrite may be missing at its end: they are not
    /// looked at.
    pub fn decode(message: &'a [u8], size: u32) -> Result<T<'a>, WireError> {
        let kind = *message.get(4).ok_or(WireError::short("type", 4))?;
        let mut f = Fields::new(message, HEAD);
        let t = match kind {
            kind::TVERSION => T::Version { msize: f.u32("msize")?, version: f.text("version")? },
            kind::TAUTH => {
                T::Auth { afid: f.u32("afid")?, uname: f.text("uname")?, aname: f.text("aname")? }
            }
            kind::TATTACH => T::Attach {
                fid: f.u32("fid")?,
                afid: f.u32("afid")?,
                uname: f.text("uname")?,
                aname: f.text("aname")?,
            },
            kind::TFLUSH => T::Flush { oldtag: f.u16("oldtag")? },
            kind::TWALK => walk(&mut f)?,
            kind::TOPEN => T::Open { fid: f.u32("fid")?, mode: f.u8("mode")? },
            kind::TCREATE => T::Create {
                fid: f.u32("fid")?,
                name: f.text("name")?,
                perm: f.u32("perm")?,
                mode: f.u8("mode")?,
            },
            kind::TREAD => {
                T::Read { fid: f.u32("fid")?, offset: f.u64("offset")?, count: f.u32("count")? }
            }
            kind::TWRITE => {
                let t = T::Write {
                    fid: f.u32("fid")?,
                    offset: f.u64("offset")?,
                    count: f.u32("count")?,
                };
                let T::Write { count, .. } = t else { return Ok(t) };
                let fits = u64::from(count) + WRITE_HEAD as u64 == u64::from(size);
                return if fits { Ok(t) } else { Err(WireError::bad("count", 19)) };
            }
            kind::TCLUNK => T::Clunk { fid: f.u32("fid")? },
            kind::TREMOVE => T::Remove { fid: f.u32("fid")? },
            kind::TSTAT => T::Stat { fid: f.u32("fid")? },
            kind::TWSTAT => {
                let fid = f.u32("fid")?;
                let at = f.place();
                let n = f.u16("nstat")?;
                let stat = Stat::decode_in(&mut f)?;
                if f.place() - at - 2 != u32::from(n) {
                    return Err(WireError::bad("nstat", at));
                }
                T::Wstat { fid, stat }
            }
            _ => return Err(WireError::bad("type", 4)),
        };
        f.end("size")?;
        Ok(t)
    }

    fn kind(&self) -> u8 {
        match self {
            T::Version { .. } => kind::TVERSION,
            T::Auth { .. } => kind::TAUTH,
            T::Attach { .. } => kind::TATTACH,
            T::Flush { .. } => kind::TFLUSH,
            T::Walk { .. } => kind::TWALK,
            T::Open { .. } => kind::TOPEN,
            T::Create { .. } => kind::TCREATE,
            T::Read { .. } => kind::TREAD,
            T::Write { .. } => kind::TWRITE,
            T::Clunk { .. } => kind::TCLUNK,
            T::Remove { .. } => kind::TREMOVE,
            T::Stat { .. } => kind::TSTAT,
            T::Wstat { .. } => kind::TWSTAT,
        }
    }

    /// Appends the message; the data of a Twrite are to follow.
    pub fn encode(&self, tag: u16, out: &mut Vec<u8>) {
        let start = begin(self.kind(), tag, out);
        let mut more = 0;
        match *self {
            T::Version { msize, version } => {
                out.extend_from_slice(&msize.to_le_bytes());
                put_text(out, version);
            }
            T::Auth { afid, uname, aname } => {
                out.extend_from_slice(&afid.to_le_bytes());
                put_text(out, uname);
                put_text(out, aname);
            }
            T::Attach { fid, afid, uname, aname } => {
                out.extend_from_slice(&fid.to_le_bytes());
                out.extend_from_slice(&afid.to_le_bytes());
                put_text(out, uname);
                put_text(out, aname);
            }
            T::Flush { oldtag } => out.extend_from_slice(&oldtag.to_le_bytes()),
            T::Walk { fid, newfid, names } => {
                out.extend_from_slice(&fid.to_le_bytes());
                out.extend_from_slice(&newfid.to_le_bytes());
                out.extend_from_slice(&(names.as_slice().len() as u16).to_le_bytes());
                names.as_slice().iter().for_each(|n| put_text(out, n));
            }
            T::Open { fid, mode } => {
                out.extend_from_slice(&fid.to_le_bytes());
                out.push(mode);
            }
            T::Create { fid, name, perm, mode } => {
                out.extend_from_slice(&fid.to_le_bytes());
                put_text(out, name);
                out.extend_from_slice(&perm.to_le_bytes());
                out.push(mode);
            }
            T::Read { fid, offset, count } | T::Write { fid, offset, count } => {
                out.extend_from_slice(&fid.to_le_bytes());
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
                more = if matches!(self, T::Write { .. }) { count } else { 0 };
            }
            T::Clunk { fid } | T::Remove { fid } | T::Stat { fid } => {
                out.extend_from_slice(&fid.to_le_bytes());
            }
            T::Wstat { fid, stat } => {
                out.extend_from_slice(&fid.to_le_bytes());
                out.extend_from_slice(&(stat.len() as u16).to_le_bytes());
                stat.encode(out);
            }
        }
        finish(start, more, out);
    }
}

fn walk<'a>(f: &mut Fields<'a>) -> Result<T<'a>, WireError> {
    let (fid, newfid) = (f.u32("fid")?, f.u32("newfid")?);
    let at = f.place();
    let n = usize::from(f.u16("nwname")?);
    if n > WALK_MAX {
        return Err(WireError::new(Kind::TooLong, "nwname", at));
    }
    let mut names = Names { names: [""; WALK_MAX], len: n };
    for name in names.names.iter_mut().take(n) {
        *name = f.text("wname")?;
    }
    Ok(T::Walk { fid, newfid, names })
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum R<'a> {
    Version { msize: u32, version: &'a str },
    Auth { aqid: Qid },
    Attach { qid: Qid },
    Error { ename: &'a str },
    Flush,
    Walk { qids: Vec<Qid> },
    Open { qid: Qid, iounit: u32 },
    Create { qid: Qid, iounit: u32 },
    Read { data: &'a [u8] },
    Write { count: u32 },
    Clunk,
    Remove,
    Stat { stat: Stat<'a> },
    Wstat,
}

impl<'a> R<'a> {
    /// From a whole message.
    pub fn decode(message: &'a [u8]) -> Result<R<'a>, WireError> {
        let kind = *message.get(4).ok_or(WireError::short("type", 4))?;
        let mut f = Fields::new(message, HEAD);
        let r = match kind.wrapping_sub(1) {
            kind::TVERSION => R::Version { msize: f.u32("msize")?, version: f.text("version")? },
            kind::TAUTH => R::Auth { aqid: Qid::decode(&mut f)? },
            kind::TATTACH => R::Attach { qid: Qid::decode(&mut f)? },
            k if k == kind::RERROR - 1 => R::Error { ename: f.text("ename")? },
            kind::TFLUSH => R::Flush,
            kind::TWALK => {
                let at = f.place();
                let n = usize::from(f.u16("nwqid")?);
                if n > WALK_MAX {
                    return Err(WireError::new(Kind::TooLong, "nwqid", at));
                }
                let qids = (0..n).map(|_| Qid::decode(&mut f)).collect::<Result<_, _>>()?;
                R::Walk { qids }
            }
            kind::TOPEN => R::Open { qid: Qid::decode(&mut f)?, iounit: f.u32("iounit")? },
            kind::TCREATE => R::Create { qid: Qid::decode(&mut f)?, iounit: f.u32("iounit")? },
            kind::TREAD => {
                let count = f.u32("count")?;
                R::Read { data: f.take(count as usize, "data")? }
            }
            kind::TWRITE => R::Write { count: f.u32("count")? },
            kind::TCLUNK => R::Clunk,
            kind::TREMOVE => R::Remove,
            kind::TSTAT => {
                let at = f.place();
                let n = f.u16("nstat")?;
                let stat = Stat::decode_in(&mut f)?;
                if f.place() - at - 2 != u32::from(n) {
                    return Err(WireError::bad("nstat", at));
                }
                R::Stat { stat }
            }
            kind::TWSTAT => R::Wstat,
            _ => return Err(WireError::bad("type", 4)),
        };
        f.end("size")?;
        Ok(r)
    }

    pub fn encode(&self, tag: u16, out: &mut Vec<u8>) {
        let kind = match self {
            R::Version { .. } => kind::TVERSION + 1,
            R::Auth { .. } => kind::TAUTH + 1,
            R::Attach { .. } => kind::TATTACH + 1,
            R::Error { .. } => kind::RERROR,
            R::Flush => kind::TFLUSH + 1,
            R::Walk { .. } => kind::TWALK + 1,
            R::Open { .. } => kind::TOPEN + 1,
            R::Create { .. } => kind::TCREATE + 1,
            R::Read { .. } => kind::TREAD + 1,
            R::Write { .. } => kind::TWRITE + 1,
            R::Clunk => kind::TCLUNK + 1,
            R::Remove => kind::TREMOVE + 1,
            R::Stat { .. } => kind::TSTAT + 1,
            R::Wstat => kind::TWSTAT + 1,
        };
        let start = begin(kind, tag, out);
        match self {
            R::Version { msize, version } => {
                out.extend_from_slice(&msize.to_le_bytes());
                put_text(out, version);
            }
            R::Auth { aqid: qid } | R::Attach { qid } => qid.encode(out),
            R::Error { ename } => put_text(out, ename),
            R::Walk { qids } => {
                out.extend_from_slice(&(qids.len() as u16).to_le_bytes());
                qids.iter().for_each(|q| q.encode(out));
            }
            R::Open { qid, iounit } | R::Create { qid, iounit } => {
                qid.encode(out);
                out.extend_from_slice(&iounit.to_le_bytes());
            }
            R::Read { data } => {
                out.extend_from_slice(&(data.len() as u32).to_le_bytes());
                out.extend_from_slice(data);
            }
            R::Write { count } => out.extend_from_slice(&count.to_le_bytes()),
            R::Stat { stat } => {
                out.extend_from_slice(&(stat.len() as u16).to_le_bytes());
                stat.encode(out);
            }
            R::Flush | R::Clunk | R::Remove | R::Wstat => {}
        }
        finish(start, 0, out);
    }
}

/// The head of an Rread with `count` bytes behind it.
pub fn read_head(tag: u16, count: u32, out: &mut Vec<u8>) {
    let start = begin(kind::TREAD + 1, tag, out);
    out.extend_from_slice(&count.to_le_bytes());
    finish(start, count, out);
}

/// The head of a Twrite with `count` bytes behind it.
pub fn write_head(tag: u16, fid: u32, offset: u64, count: u32, out: &mut Vec<u8>) {
    T::Write { fid, offset, count }.encode(tag, out);
}

fn begin(kind: u8, tag: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    out.extend_from_slice(&tag.to_le_bytes());
    start
}

fn finish(start: usize, more: u32, out: &mut [u8]) {
    let size = (out.len() - start) as u32 + more;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&size.to_le_bytes());
    }
}
