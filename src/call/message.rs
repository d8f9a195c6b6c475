//! The facts about a call for the statistics.

/// The data of one rank's call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The row of [`crate::mpi::types::TYPES`], from 1, or [`Message::OWN`]; 0: not looked at.
    pub datatype: u8,
    /// [`crate::mpi::types::Op::number`], or [`Message::OWN`]; 0: none.
    pub op: u8,
    /// Count times size; where each rank has its own count, of all ranks. If each pair of ranks has data of its own,
    /// the bytes that this rank sends, as far as its arguments were looked at.
    pub bytes: u64,
}

impl Message {
    /// A datatype or an op of the program's.
    pub const OWN: u8 = u8::MAX;
}
