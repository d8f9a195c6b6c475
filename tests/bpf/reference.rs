//! The right result of a fold, by arithmetic in 128 bits: no code in common with either fold of
//! foldback.

use foldback::bindings as b;

use crate::random::Rng;

/// Element types: `enum fb_type`, bytes, signed.
const TYPES: [(b::fb_type, usize, bool); 8] = [
    (b::FB_TYPE_I8, 1, true),
    (b::FB_TYPE_U8, 1, false),
    (b::FB_TYPE_I16, 2, true),
    (b::FB_TYPE_U16, 2, false),
    (b::FB_TYPE_I32, 4, true),
    (b::FB_TYPE_U32, 4, false),
    (b::FB_TYPE_I64, 8, true),
    (b::FB_TYPE_U64, 8, false),
];

/// Bytes of an element.
pub fn element_bytes(element: u8) -> usize {
    TYPES[usize::from(element)].1
}

/// Folds the contributions of all members.
pub fn fold_all(contributions: &[Vec<u8>], op: u8, element: u8) -> Vec<u8> {
    let (name, size, signed) = TYPES[usize::from(element)];
    assert_eq!(name, b::fb_type::from(element));
    let (first, others) = contributions.split_first().expect("someone contributes");
    let mut result = first.clone();
    for other in others {
        for (x, y) in result.chunks_exact_mut(size).zip(other.chunks_exact(size)) {
            let folded = fold(value(x, signed), value(y, signed), op);
            x.copy_from_slice(&folded.to_le_bytes()[..size]);
        }
    }
    result
}

/// The number in little-endian `bytes`.
fn value(bytes: &[u8], signed: bool) -> i128 {
    let negative = signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn fold(x: i128, y: i128, op: u8) -> i128 {
    match b::fb_op::from(op) {
        b::FB_OP_SUM => x.wrapping_add(y),
        b::FB_OP_PROD => x.wrapping_mul(y),
        b::FB_OP_MIN => x.min(y),
        b::FB_OP_MAX => x.max(y),
        b::FB_OP_BAND => x & y,
        b::FB_OP_BOR => x | y,
        b::FB_OP_BXOR => x ^ y,
        b::FB_OP_LAND => i128::from(x != 0 && y != 0),
        b::FB_OP_LOR => i128::from(x != 0 || y != 0),
        b::FB_OP_LXOR => i128::from((x != 0) ^ (y != 0)),
        other => panic!("op {other} folds nothing"),
    }
}

/// Elements among which are the ones where folds go wrong: zeroes, equals, the least and the
/// greatest.
pub fn elements(rng: &mut Rng, element: u8, bytes: usize) -> Vec<u8> {
    let size = element_bytes(element);
    let mut data = Vec::with_capacity(bytes);
    while data.len() < bytes {
        let top = 1_u64 << (8 * size - 1);
        let value = match rng.below(8) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => top,
            4 => top - 1,
            5 => rng.below(4),
            _ => rng.next(),
        };
        data.extend(&value.to_le_bytes()[..size]);
    }
    data
}
