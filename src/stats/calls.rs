//! Counters of one process: calls and bytes, by kind of call and by outcome.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::call::{COLLECTIVES, Collective, Form, Message};
use crate::gate::Reason;
use crate::mpi::types;

/// How a call ended: folded, or left to MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Folded,
    /// Folded and quantized.
    Quantized,
    /// To MPI, for a reason that all ranks share.
    Left(Reason),
    /// To MPI, which is to refuse the arguments of this rank.
    Refused,
}

impl CallOutcome {
    /// The name of [`CallOutcome::Refused`] in the statistics.
    const REFUSED: &'static str = "argument";

    fn number(self) -> usize {
        match self {
            Self::Folded => 0,
            Self::Quantized => 1,
            Self::Refused => 2,
            Self::Left(reason) => reason as usize + 3,
        }
    }

    fn of(number: usize) -> Option<Self> {
        match number {
            0 => Some(Self::Folded),
            1 => Some(Self::Quantized),
            2 => Some(Self::Refused),
            _ => Reason::ALL.get(number - 3).map(|reason| Self::Left(*reason)),
        }
    }

    /// Why it went to MPI.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Folded | Self::Quantized => None,
            Self::Left(reason) => Some(reason.text()),
            Self::Refused => Some(Self::REFUSED),
        }
    }
}

/// The kind of a call, whose number, never 0, selects a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    collective: Collective,
    form: Form,
    outcome: CallOutcome,
    datatype: u8,
    op: u8,
    /// Smallest power of two that is not less than the bytes, by its logarithm, and 1; 0 for no bytes.
    size: u8,
}

impl Kind {
    /// The bits of datatype, op and size in a number.
    const MESSAGE: u32 = (1 << 18) - 1;

    #[inline]
    fn number(&self) -> u32 {
        let op = if self.op == Message::OWN { 15 } else { u32::from(self.op) };
        1 << 31
            | (self.collective as u32) << 26
            | (self.form as u32) << 24
            | (self.outcome.number() as u32) << 18
            | u32::from(self.datatype) << 10
            | op << 6
            | u32::from(self.size)
    }

    fn of(number: u32) -> Option<Self> {
        let field = |at: u32, bits: u32| (number >> at & ((1 << bits) - 1)) as usize;
        Some(Self {
            collective: *COLLECTIVES.get(field(26, 5))?,
            form: *Form::ALL.get(field(24, 2))?,
            outcome: CallOutcome::of(field(18, 6))?,
            datatype: field(10, 8) as u8,
            op: if field(6, 4) == 15 { Message::OWN } else { field(6, 4) as u8 },
            size: field(0, 6) as u8,
        })
    }
}

/// The counters: a table with open addressing, in which nothing is ever removed.
pub struct Calls {
    slots: Box<[Slot; SLOTS]>,
    kinds: AtomicU32,
}

const SLOTS: usize = 4096;
/// With so many kinds, type, op and size are no longer told apart. The kinds without them are fewer
/// than the slots left.
const MANY: u32 = 1024;

#[derive(Default)]
struct Slot {
    /// [`Kind::number`], or 0.
    kind: AtomicU32,
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Calls {
    fn default() -> Self {
        let slots: Vec<Slot> = (0..SLOTS).map(|_| Slot::default()).collect();
        let slots = slots.try_into().unwrap_or_else(|_| unreachable!("as many as there are"));
        Self { slots, kinds: AtomicU32::new(0) }
    }
}

impl Calls {
    /// Counts a call. Relaxed and not atomic as a whole: it costs two plain additions, and two
    /// threads that count the same at the same time may lose a count.
    #[inline]
    pub fn count(
        &self,
        form: Form,
        collective: Collective,
        outcome: CallOutcome,
        message: Message,
    ) {
        let Message { datatype, op, bytes } = message;
        let size = if bytes == 0 { 0 } else { (65 - (bytes - 1).leading_zeros()).min(63) };
        let kind = Kind { collective, form, outcome, datatype, op, size: size as u8 };
        let number = kind.number();
        let slot = self.slot(number).unwrap_or_else(|| self.new_slot(number));
        let add = |to: &AtomicU64, n: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        };
        add(&slot.calls, 1);
        add(&slot.bytes, bytes);
    }

    /// Fibonacci hashing, Knuth vol. 3, 6.4.
    fn home(number: u32) -> usize {
        (number.wrapping_mul(0x9e37_79b9) >> 16) as usize
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        let mut at = Self::home(number);
        loop {
            let slot = &self.slots[at % SLOTS];
            match slot.kind.load(Ordering::Relaxed) {
                kind if kind == number => return Some(slot),
                0 => return None,
                _ => at += 1,
            }
        }
    }

    #[cold]
    fn new_slot(&self, mut number: u32) -> &Slot {
        if self.kinds.load(Ordering::Relaxed) < MANY {
            self.kinds.fetch_add(1, Ordering::Relaxed);
        } else {
            number &= !Kind::MESSAGE;
        }
        let mine = |slot: &&Slot| {
            let (order, free) = (Ordering::Relaxed, 0);
            let taken = slot.kind.compare_exchange(free, number, order, order);
            taken.is_ok() || taken == Err(number)
        };
        let home = Self::home(number);
        let mut slots = (home..home + SLOTS).map(|at| &self.slots[at % SLOTS]);
        // There is one: see MANY.
        slots.find(mine).unwrap_or(&self.slots[0])
    }

    /// The counted calls.
    pub fn lines(&self) -> Vec<CallLine> {
        self.slots.iter().filter_map(Slot::line).collect()
    }
}

impl Slot {
    fn line(&self) -> Option<CallLine> {
        let kind = Kind::of(self.kind.load(Ordering::Relaxed)).filter(|kind| kind.number() != 0)?;
        let calls = self.calls.load(Ordering::Relaxed);
        let reason = kind.outcome.reason();
        (calls > 0).then(|| CallLine {
            collective: kind.collective,
            form: kind.form,
            route: if reason.is_none() { Route::Fold } else { Route::Mpi },
            reason: reason.map(str::to_owned),
            quantized: kind.outcome == CallOutcome::Quantized,
            datatype: type_name(kind.datatype),
            op: op_name(kind.op),
            up_to_bytes: 1u64.checked_shl(u32::from(kind.size).wrapping_sub(1)).unwrap_or(0),
            calls,
            bytes: self.bytes.load(Ordering::Relaxed),
        })
    }
}

fn type_name(datatype: u8) -> Option<String> {
    match datatype {
        0 => None,
        Message::OWN => Some("derived".into()),
        row => types::TYPES.get(usize::from(row) - 1).map(|row| types::name(row.5)),
    }
}

fn op_name(op: u8) -> Option<String> {
    match op {
        0 => None,
        Message::OWN => Some("user op".into()),
        number => {
            let row = types::OPS.iter().find(|row| row.0.number() == usize::from(number));
            row.map(|row| types::name(row.3))
        }
    }
}

/// The route of a call.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    Fold,
    /// To the real MPI.
    Mpi,
}

/// Calls of one kind with one outcome.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CallLine {
    pub collective: Collective,
    pub form: Form,
    pub route: Route,
    /// Why they were left to MPI, if they were.
    pub reason: Option<String>,
    /// They were folded as integers of fewer bits (docs/using/quantization.md).
    #[serde(default)]
    pub quantized: bool,
    /// Their datatype; `None` if the reason was found before it was looked at.
    pub datatype: Option<String>,
    /// The op of reductions.
    pub op: Option<String>,
    /// Bytes of a call, at most; more than half as many. 0 where calls of bytes are told apart no more.
    pub up_to_bytes: u64,
    /// Calls, over all ranks.
    pub calls: u64,
    /// Bytes of these, over all ranks.
    pub bytes: u64,
}

impl CallLine {
    /// Whether its calls are of various datatypes, ops and sizes, beyond the kinds that are told apart.
    pub fn is_of_many_kinds(&self) -> bool {
        self.up_to_bytes == 0 && self.bytes > 0
    }

    /// Whether calls of both are of one kind.
    pub fn is_like(&self, other: &Self) -> bool {
        let kind = |line: &Self| (line.collective, line.form, line.up_to_bytes);
        (kind(self), &self.reason, self.quantized, &self.datatype, &self.op)
            == (kind(other), &other.reason, other.quantized, &other.datatype, &other.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_numbers_of_their_own() {
        let mut seen = std::collections::HashSet::new();
        for &collective in COLLECTIVES {
            for form in Form::ALL {
                let reasons = Reason::ALL.iter().map(|reason| CallOutcome::Left(*reason));
                for outcome in reasons.chain([
                    CallOutcome::Folded,
                    CallOutcome::Quantized,
                    CallOutcome::Refused,
                ]) {
                    for (datatype, op, size) in
                        [(0, 0, 0), (Message::OWN, Message::OWN, 63), (7, 1, 4)]
                    {
                        let kind = Kind { collective, form, outcome, datatype, op, size };
                        assert_eq!(Kind::of(kind.number()), Some(kind));
                        assert!(seen.insert(kind.number()));
                    }
                }
            }
        }
        assert!(seen.len() / 3 <= SLOTS - MANY as usize, "the kinds that are left at the end fit");
    }

    #[test]
    fn calls_are_told_apart_by_size_and_nothing_is_lost_when_there_are_too_many() {
        let calls = Calls::default();
        let count = |datatype, bytes| {
            let message = Message { datatype, op: 1, bytes };
            calls.count(Form::Blocking, COLLECTIVES[0], CallOutcome::Folded, message);
        };
        for bytes in [0, 1, 2, 3, 4, 5, 8] {
            count(1, bytes);
        }
        let mut sizes: Vec<_> =
            calls.lines().iter().map(|line| (line.up_to_bytes, line.calls, line.bytes)).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [(0, 1, 0), (1, 1, 1), (2, 1, 2), (4, 2, 7), (8, 2, 13)]);
        for datatype in 2..80 {
            for size in 0..40 {
                count(datatype, 1 << size);
            }
        }
        let lines = calls.lines();
        assert!(lines.len() < SLOTS);
        assert_eq!(lines.iter().map(|line| line.calls).sum::<u64>(), 7 + 78 * 40);
        let rest: Vec<_> = lines.iter().filter(|line| line.datatype.is_none()).collect();
        assert!(rest.len() == 1 && rest[0].is_of_many_kinds());
        assert!(lines.iter().all(|line| line.datatype.is_none() || !line.is_of_many_kinds()));
    }
}
