//! The fold among ranks of one host: the same meaning as `bpf/fold.h`, in user space.

use crate::bindings as b;

/// `into[i] = op(into[i], from[i])` for whole elements of type `element` (`enum fb_type`).
///
/// Panics if the lengths differ.
pub fn fold(into: &mut [u8], from: &[u8], op: u8, element: u8) {
    assert_eq!(into.len(), from.len());
    match u32::from(element) {
        b::FB_TYPE_I8 => typed::<i8, 1>(into, from, op),
        b::FB_TYPE_U8 => typed::<u8, 1>(into, from, op),
        b::FB_TYPE_I16 => typed::<i16, 2>(into, from, op),
        b::FB_TYPE_U16 => typed::<u16, 2>(into, from, op),
        b::FB_TYPE_I32 => typed::<i32, 4>(into, from, op),
        b::FB_TYPE_U32 => typed::<u32, 4>(into, from, op),
        b::FB_TYPE_I64 => typed::<i64, 8>(into, from, op),
        _ => typed::<u64, 8>(into, from, op),
    }
}

trait Element<const SIZE: usize>: Copy + Ord + Default {
    fn load(bytes: [u8; SIZE]) -> Self;
    fn store(self) -> [u8; SIZE];
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn truth(value: bool) -> Self;
}

macro_rules! element {
    ($($type:ty),*) => {$(
        impl Element<{ size_of::<$type>() }> for $type {
            fn load(bytes: [u8; size_of::<$type>()]) -> Self { Self::from_ne_bytes(bytes) }
            fn store(self) -> [u8; size_of::<$type>()] { self.to_ne_bytes() }
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn prod(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
            fn truth(value: bool) -> Self { Self::from(value) }
        }
    )*};
}

element!(i8, u8, i16, u16, i32, u32, i64, u64);

fn typed<T: Element<SIZE>, const SIZE: usize>(into: &mut [u8], from: &[u8], op: u8) {
    // One loop an op, so that the compiler makes vectors of each.
    let zero = T::default();
    match u32::from(op) {
        b::FB_OP_SUM => each::<T, SIZE>(into, from, T::sum),
        b::FB_OP_PROD => each::<T, SIZE>(into, from, T::prod),
        b::FB_OP_MIN => each::<T, SIZE>(into, from, T::min),
        b::FB_OP_MAX => each::<T, SIZE>(into, from, T::max),
        b::FB_OP_BAND => each::<T, SIZE>(into, from, T::and),
        b::FB_OP_BOR => each::<T, SIZE>(into, from, T::or),
        b::FB_OP_BXOR => each::<T, SIZE>(into, from, T::xor),
        b::FB_OP_LAND => each::<T, SIZE>(into, from, |x, y| T::truth(x != zero && y != zero)),
        b::FB_OP_LOR => each::<T, SIZE>(into, from, |x, y| T::truth(x != zero || y != zero)),
        b::FB_OP_LXOR => each::<T, SIZE>(into, from, |x, y| T::truth((x != zero) != (y != zero))),
        _ => {}
    }
}

#[inline(always)]
fn each<T: Element<SIZE>, const SIZE: usize>(
    into: &mut [u8],
    from: &[u8],
    combine: impl Fn(T, T) -> T,
) {
    let (into, _) = into.as_chunks_mut::<SIZE>();
    let (from, _) = from.as_chunks::<SIZE>();
    for (x, y) in into.iter_mut().zip(from) {
        *x = combine(T::load(*x), T::load(*y)).store();
    }
}

#[cfg(test)]
mod tests {
    use super::fold;
    use crate::bindings as b;

    #[test]
    fn sums_wrap_and_unsigned_compares_as_unsigned() {
        let check = |op: u32, element: u32, x: &[u8], y: &[u8], want: &[u8]| {
            let mut into = x.to_vec();
            fold(&mut into, y, op as u8, element as u8);
            assert_eq!(into, want);
        };
        check(b::FB_OP_SUM, b::FB_TYPE_I8, &[127], &[1], &[128]);
        check(b::FB_OP_SUM, b::FB_TYPE_U16, &[255, 255], &[1, 0], &[0, 0]);
        check(b::FB_OP_MAX, b::FB_TYPE_U8, &[200], &[100], &[200]);
        check(b::FB_OP_MAX, b::FB_TYPE_I8, &[200], &[100], &[100]);
        check(b::FB_OP_LAND, b::FB_TYPE_U8, &[7, 0], &[9, 1], &[1, 0]);
        check(b::FB_OP_LXOR, b::FB_TYPE_U8, &[7, 0], &[9, 1], &[0, 1]);
    }
}
