//! Requests of a layer on a model of a disk.

use bio::{Bio, Errno, Flags, Op, Status};
use reactor::model::{DiskModel, DiskOp};

/// The operation whose time a request takes.
///
/// # Errors
///
/// `NoAttr` for requests that no disk carries out: attributes and maps.
pub fn model_op(op: Op) -> Result<DiskOp, Errno> {
    match op {
        Op::Read => Ok(DiskOp::Read),
        Op::Write => Ok(DiskOp::Write),
        Op::Delete => Ok(DiskOp::Discard),
        Op::WriteZeroes => Ok(DiskOp::Zero),
        Op::Flush => Ok(DiskOp::Flush),
        Op::GetAttr | Op::Map => Err(Errno::NoAttr),
    }
}

/// Carries out a request on a model. Writes with FUA are durable.
///
/// # Errors
///
/// Those of the model, and `NotSup` for attributes and maps.
pub fn carry_out(model: &mut DiskModel, bio: &mut Bio) -> Status {
    match bio.op {
        Op::Read => {
            let mut bytes = vec![0; bio.data.len()];
            model.read(bio.offset, &mut bytes)?;
            bio.data.copy_from(0, &bytes);
            Ok(())
        }
        Op::Write => model.write(bio.offset, &bio.data.to_vec(), bio.flags.has(Flags::FUA)),
        Op::Delete => {
            for range in bio.ranges() {
                model.discard(range.start, range.end - range.start)?;
            }
            Ok(())
        }
        Op::WriteZeroes => model.zero(bio.offset, bio.length),
        Op::Flush => model.flush(),
        Op::GetAttr | Op::Map => Err(Errno::NotSup),
    }
}
