//! Values that are one word while they are folded: integers, minima and maxima of floating point. Pure.
//!
//! A value is widened to 64 bits when it is added, and narrowed at the end. That changes no result: arithmetic that
//! wraps gives the same lower bits at any width, and all else depends on the value alone.

use crate::leaf::arithmetic::{Arithmetic, Element, Operator, Real};
use crate::leaf::order;

/// How values are widened, folded and narrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    op: Operator,
    /// The integers that are widened: of reals their keys (`leaf::order`), which have a sign.
    element: Element,
    real: Option<Real>,
}

/// Bits that turn the order of integers with a sign into the order of unsigned ones.
const SIGN: u64 = 1 << 63;

impl Word {
    /// `None`: such values are no words.
    pub(super) fn of(Arithmetic { op, element }: Arithmetic) -> Option<Self> {
        let real = element.real();
        let element = match real {
            None => element,
            Some(_) if !matches!(op, Operator::Min | Operator::Max) => return None,
            Some(Real::F32) => Element::I32,
            Some(Real::F64) => Element::I64,
        };
        Some(Self { op, element, real })
    }

    /// Bytes of a value.
    pub(super) fn size(self) -> usize {
        match self.element {
            Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    fn is_signed(self) -> bool {
        matches!(self.element, Element::I8 | Element::I16 | Element::I32 | Element::I64)
    }

    /// The op and the integers of 64 bits that fold words like this.
    pub(super) fn folds_as(self) -> (Operator, Element) {
        (self.op, if self.is_signed() { Element::I64 } else { Element::U64 })
    }

    /// Whether words lie in memory as they are.
    pub(super) fn is_plain(self) -> bool {
        self.real.is_none() && self.size() == size_of::<u64>()
    }

    /// The words of values as they lie in memory.
    pub(super) fn widen(self, values: &[u8], mut each: impl FnMut(usize, u64)) {
        let keys;
        let values = match self.real {
            None => values,
            Some(format) => {
                keys = order::keys(values, format, self.op == Operator::Max);
                &keys
            }
        };
        macro_rules! all {
            ($type:ty, $wide:ty) => {
                for (at, bytes) in values.as_chunks().0.iter().enumerate() {
                    each(at, <$wide>::from(<$type>::from_ne_bytes(*bytes)) as u64);
                }
            };
        }
        match self.element {
            Element::I8 => all!(i8, i64),
            Element::U8 => all!(u8, u64),
            Element::I16 => all!(i16, i64),
            Element::U16 => all!(u16, u64),
            Element::I32 | Element::F32 => all!(i32, i64),
            Element::U32 => all!(u32, u64),
            Element::I64 | Element::F64 => all!(i64, i64),
            Element::U64 => all!(u64, u64),
        }
    }

    /// Appends the value of a word, as it lies in memory.
    pub(super) fn narrow(self, word: u64, values: &mut Vec<u8>) {
        let start = values.len();
        match self.size() {
            1 => values.push(word as u8),
            2 => values.extend((word as u16).to_ne_bytes()),
            4 => values.extend((word as u32).to_ne_bytes()),
            _ => values.extend(word.to_ne_bytes()),
        }
        if let Some(format) = self.real {
            let (mut key, bytes) = ([0; 8], &mut values[start..]);
            let key = &mut key[..bytes.len()];
            key.copy_from_slice(bytes);
            order::unkey(key, bytes, format);
        }
    }

    #[inline(always)]
    pub(super) fn fold(self, x: u64, y: u64) -> u64 {
        let flip = if self.is_signed() { SIGN } else { 0 };
        match self.op {
            Operator::Sum => x.wrapping_add(y),
            Operator::Prod => x.wrapping_mul(y),
            Operator::Min => (x ^ flip).min(y ^ flip) ^ flip,
            Operator::Max => (x ^ flip).max(y ^ flip) ^ flip,
            Operator::Band => x & y,
            Operator::Bor => x | y,
            Operator::Bxor => x ^ y,
            Operator::Land => u64::from(x != 0 && y != 0),
            Operator::Lor => u64::from(x != 0 || y != 0),
            Operator::Lxor => u64::from((x != 0) != (y != 0)),
        }
    }

    /// A number in the order of values, of a value as it lies in memory.
    pub(super) fn rank(self, value: &[u8]) -> u64 {
        let mut rank = 0;
        // A NaN is the greatest.
        let by_max = Self { op: if self.real.is_some() { Operator::Max } else { self.op }, ..self };
        by_max.widen(value, |_, word| rank = word);
        // A value that has wrapped is narrow by now, so the word has its order.
        if self.is_signed() { rank ^ SIGN } else { rank }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::fold::fold;
    use crate::random::Rng;

    /// Words give the bits that values of the type's own width give, by all ops.
    #[test]
    fn words_fold_as_their_elements_do() {
        let mut random = Rng(11);
        let reals = [Element::F32, Element::F64];
        for element in Element::INTEGERS.into_iter().chain(reals) {
            for op in Operator::ALL {
                let arithmetic = Arithmetic { op, element };
                let Some(word) = Word::of(arithmetic) else {
                    assert!(element.real().is_some());
                    continue;
                };
                for _ in 0..200 {
                    let few = random.below(2) == 0;
                    let value = |random: &mut Rng| {
                        let mut some = random.next();
                        if few {
                            some &= 0x8000_0000_8080_8081;
                        }
                        some.to_ne_bytes()[..word.size()].to_vec()
                    };
                    let values: Vec<_> = (0..5).map(|_| value(&mut random)).collect();
                    let mut expected = values[0].clone();
                    values[1..].iter().for_each(|value| fold(&mut expected, value, arithmetic));
                    let mut words = Vec::new();
                    word.widen(&values.concat(), |_, value| words.push(value));
                    let folded = words.into_iter().reduce(|x, y| word.fold(x, y)).expect("some");
                    let mut narrowed = Vec::new();
                    word.narrow(folded, &mut narrowed);
                    assert_eq!(narrowed, expected, "{arithmetic:?} of {values:?}");
                }
            }
        }
    }

    #[test]
    fn ranks_are_in_the_order_of_values() {
        let word = |element| Word::of(Arithmetic { op: Operator::Max, element }).expect("a word");
        let ints = [i32::MIN, -1, 0, 1, i32::MAX].map(i32::to_ne_bytes);
        assert!(ints.map(|x| word(Element::I32).rank(&x)).is_sorted_by(|x, y| x < y));
        let reals = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1e9, f64::INFINITY, f64::NAN];
        let reals = reals.map(f64::to_ne_bytes);
        assert!(reals.map(|x| word(Element::F64).rank(&x)).is_sorted_by(|x, y| x < y));
        let bytes = [[0u8], [1], [127], [128], [255]];
        assert!(bytes.map(|x| word(Element::U8).rank(&x)).is_sorted_by(|x, y| x < y));
    }
}
