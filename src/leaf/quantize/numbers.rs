//! Numbers and integers as they lie in memory, and the steps from one to the other.

/// Numbers as they lie in memory.
pub trait Real<const SIZE: usize>: Copy {
    /// The bias of exponents in the format.
    const BIAS: i32;
    /// Whether floats hold all of its numbers. Vectors have twice as many of these as of doubles.
    const IS_IN_FLOATS: bool;

    fn load(bytes: &[u8; SIZE]) -> Self;
    /// The exponent, as the format has it.
    fn exponent(self) -> u32;
    fn wide(self) -> f64;
    /// A number, rounded.
    fn store(number: f64) -> [u8; SIZE];

    /// As a float, if that holds it.
    fn float(self) -> f32;

    #[inline(always)]
    fn store_float(number: f32) -> [u8; SIZE] {
        Self::store(number.into())
    }

    /// The factor from numbers to units of a block with this exponent, if its greatest number has so many
    /// `bits`. In two steps, each in the range of doubles.
    fn scale(exponent: u32, bits: u32) -> [f64; 2] {
        let power = -unit_exponent(exponent, bits, Self::BIAS);
        [power / 2, power - power / 2].map(power_of_two)
    }

    /// Such a unit.
    fn unit(exponent: u32, bits: u32) -> f64 {
        power_of_two(unit_exponent(exponent, bits, Self::BIAS))
    }

    /// The integer next to it after `noise` is added, of ties the even one.
    // Scaling is exact, but for what comes to nothing. The sum is in units of 1, so it is rounded to that, and
    // its lowest bits are the integer's.
    #[inline(always)]
    fn scaled(self, [first, second]: [f64; 2], noise: f64) -> i32 {
        const SHIFT: f64 = 1.5 * (1_u64 << 52) as f64;
        (self.wide() * first * second + noise + SHIFT).to_bits() as i32
    }

    /// The integer next to it, of ties the even one, if it has no more than 16 bits: the same.
    #[inline(always)]
    fn scaled_in_floats(self, [first, second]: [f32; 2]) -> i32 {
        const SHIFT: f32 = 1.5 * (1_u32 << 23) as f32;
        (self.float() * first * second + SHIFT).to_bits() as i32
    }

    /// The rest of it when that integer has been taken, of blocks with this `unit`.
    // In units, since the integer's number may be greater than the greatest. A number that comes to nothing in
    // units is left as it is.
    #[inline(always)]
    fn without(self, integer: i32, [first, second]: [f64; 2], unit: f64) -> f64 {
        let whole = self.wide();
        let rest = (whole * first * second - f64::from(integer)) * unit;
        if integer == 0 { whole } else { rest }
    }
}

macro_rules! real {
    ($real:ident, $mantissa:literal, $bias:literal, $is_in_floats:literal) => {
        impl Real<{ size_of::<$real>() }> for $real {
            const BIAS: i32 = $bias;
            const IS_IN_FLOATS: bool = $is_in_floats;

            #[inline(always)]
            fn load(bytes: &[u8; size_of::<$real>()]) -> Self {
                Self::from_ne_bytes(*bytes)
            }

            #[inline(always)]
            fn exponent(self) -> u32 {
                ((self.to_bits() << 1) >> ($mantissa + 1)) as u32
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }

            #[inline(always)]
            fn store(number: f64) -> [u8; size_of::<$real>()] {
                (number as Self).to_ne_bytes()
            }

            #[inline(always)]
            fn float(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn store_float(number: f32) -> [u8; size_of::<$real>()] {
                Self::from(number).to_ne_bytes()
            }
        }
    };
}

real!(f32, 23, 127, true);
real!(f64, 52, 1023, false);

/// A number with so many bits of mantissa and such a bias, as one of 16 bits with fewer.
// To nearest, of ties to the even one. Subnormals: by a sum in their unit. Others: by bits, whose carry goes to the
// exponent.
macro_rules! rounded {
    ($number:ident: $real:ident of $bits:ident, $has:literal, $biased:literal, $mantissa:expr, $bias:expr) => {{
        let (magnitude, sign) = ($number.abs(), $number.is_sign_negative());
        let (bits, least, dropped) = (magnitude.to_bits(), 1 - $bias, $has - $mantissa);
        let in_units = magnitude + power_of_two(least + dropped as i32) as $real;
        let carried = bits + ((1 << (dropped - 1)) - 1) + (bits >> dropped & 1);
        let normal = (carried >> dropped).wrapping_sub((($biased - $bias) as $bits) << $mantissa);
        let is_subnormal = magnitude < power_of_two(least) as $real;
        let rest = if is_subnormal {
            in_units.to_bits() as u16
        } else {
            normal.min(0x7fff >> $mantissa << $mantissa) as u16
        };
        (rest | u16::from(sign) << 15).to_ne_bytes()
    }};
}

/// A number of 16 bits: a sign, an exponent, and so many bits of mantissa.
#[derive(Clone, Copy)]
pub struct Short<const MANTISSA: u32>(u16);

/// IEEE 754's binary16.
pub type Half = Short<10>;
/// The upper half of a float.
pub type Brain = Short<7>;

impl<const MANTISSA: u32> Short<MANTISSA> {
    const BIAS: i32 = (1 << (14 - MANTISSA)) - 1;
}

impl<const MANTISSA: u32> Real<2> for Short<MANTISSA> {
    const BIAS: i32 = Self::BIAS;
    const IS_IN_FLOATS: bool = true;

    #[inline(always)]
    fn load(bytes: &[u8; 2]) -> Self {
        Self(u16::from_ne_bytes(*bytes))
    }

    #[inline(always)]
    fn exponent(self) -> u32 {
        u32::from(self.0 & 0x7fff) >> MANTISSA
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self.float().into()
    }

    // Its bits in a float's places are a float with another bias, but for subnormals: those are counts of their unit.
    // A multiplication would serve both, but CPUs take long over subnormal floats. A bfloat16's are subnormal floats.
    #[inline(always)]
    fn float(self) -> f32 {
        let (sign, rest) = (u32::from(self.0 & 0x8000) << 16, u32::from(self.0 & 0x7fff));
        let normal = (rest << (23 - MANTISSA)) + ((127 - Self::BIAS as u32) << 23);
        if Self::BIAS == 127 || rest >> MANTISSA > 0 {
            return f32::from_bits(sign | normal);
        }
        let subnormal = rest as f32 * power_of_two(1 - Self::BIAS - MANTISSA as i32) as f32;
        f32::from_bits(sign | subnormal.to_bits())
    }

    #[inline(always)]
    fn store(number: f64) -> [u8; 2] {
        rounded!(number: f64 of u64, 52, 1023, MANTISSA, Self::BIAS)
    }

    #[inline(always)]
    fn store_float(number: f32) -> [u8; 2] {
        rounded!(number: f32 of u32, 23, 127, MANTISSA, Self::BIAS)
    }
}

/// Subnormals have the same unit as the least normal numbers.
fn unit_exponent(exponent: u32, bits: u32, bias: i32) -> i32 {
    exponent.max(1) as i32 - bias + 1 - bits as i32
}

/// 2 to the `exponent`, which is at least -1074.
fn power_of_two(exponent: i32) -> f64 {
    match u64::try_from(exponent + 1022) {
        Ok(normal) => f64::from_bits((normal + 1) << 52),
        Err(_) => f64::from_bits(1 << (exponent + 1074)),
    }
}

/// Integers as they are sent.
pub trait Lane<const SIZE: usize> {
    fn narrow(value: i32) -> [u8; SIZE];
    fn widen(bytes: [u8; SIZE]) -> i32;
}

macro_rules! lane {
    ($lane:ident) => {
        impl Lane<{ size_of::<$lane>() }> for $lane {
            #[inline(always)]
            fn narrow(value: i32) -> [u8; size_of::<$lane>()] {
                (value as Self).to_ne_bytes()
            }

            #[inline(always)]
            fn widen(bytes: [u8; size_of::<$lane>()]) -> i32 {
                Self::from_ne_bytes(bytes).into()
            }
        }
    };
}

lane!(i8);
lane!(i16);
lane!(i32);

/// Noise that is added to numbers before they are rounded.
pub trait Dither: Copy {
    /// To the number at this place, in units of 1.
    fn at(self, place: u32) -> f64;
}

/// Nothing.
#[derive(Clone, Copy)]
pub struct Silence;

impl Dither for Silence {
    #[inline(always)]
    fn at(self, _: u32) -> f64 {
        0.0
    }
}

/// Numbers that look drawn from -0.5 to 0.5.
#[derive(Clone, Copy)]
pub struct Noise {
    words: [u32; 2],
}

impl Noise {
    /// Different seeds, whose bits look drawn themselves, give different numbers.
    pub fn new(seed: u64) -> Self {
        Self { words: [seed as u32, (seed >> 32) as u32] }
    }
}

impl Dither for Noise {
    /// A hash of 32 bits, as vectors have 32-bit multiplications. The second key enters in its midst, so the
    /// numbers of two seeds are not the same in another order. (lowbias32: Chris Wellons, Prospecting for Hash
    /// Functions, 2018.)
    #[inline(always)]
    fn at(self, place: u32) -> f64 {
        let [before, amid] = self.words;
        let mut hash = place ^ before;
        hash ^= hash >> 16;
        hash = hash.wrapping_mul(0x7feb_352d) ^ amid;
        hash ^= hash >> 15;
        hash = hash.wrapping_mul(0x846c_a68b);
        hash ^= hash >> 16;
        f64::from(hash as i32) / (1_u64 << 32) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rounding;
    use super::*;

    /// All numbers of a format, those between them, and what is beyond.
    fn every_number<const MANTISSA: u32>() {
        let infinity = 0x7fff >> MANTISSA << MANTISSA;
        let load = |bits: u16| Short::<MANTISSA>::load(&bits.to_ne_bytes()).wide();
        let store = |number: f64| u16::from_ne_bytes(Short::<MANTISSA>::store(number));
        let store_float = |number| u16::from_ne_bytes(Short::<MANTISSA>::store_float(number));
        for bits in 0..infinity {
            let (exponent, rest) = (i32::from(bits >> MANTISSA), bits % (1 << MANTISSA));
            let implied = f64::from(u8::from(exponent > 0));
            let mantissa = implied + f64::from(rest) / f64::from(1 << MANTISSA);
            let number = mantissa * 2f64.powi(exponent.max(1) - Short::<MANTISSA>::BIAS);
            assert_eq!((load(bits), load(bits | 0x8000)), (number, -number));
            assert_eq!((store(number), store(-number)), (bits, bits | 0x8000));
            assert_eq!(i64::from(Short::<MANTISSA>(bits).exponent()), i64::from(exponent));
            // The next one, also where there is none but infinity.
            let next =
                number + 2f64.powi(exponent.max(1) - Short::<MANTISSA>::BIAS - MANTISSA as i32);
            let middle = f64::midpoint(number, next);
            assert_eq!(store(middle), bits + (bits & 1), "{middle:e}");
            assert_eq!(store(middle.next_down()), bits, "{middle:e}");
            assert_eq!(store(-middle.next_up()), (bits + 1) | 0x8000, "{middle:e}");
            let middle = middle as f32;
            for number in [number as f32, middle, middle.next_down(), middle.next_up()] {
                assert_eq!(store_float(-number), store(f64::from(-number)), "{number:e}");
            }
        }
        for beyond in [2f64.powi(Short::<MANTISSA>::BIAS + 1), 1e300, f64::INFINITY] {
            assert_eq!((store(beyond), store(-beyond)), (infinity, infinity | 0x8000));
        }
    }

    #[test]
    fn numbers_of_sixteen_bits_are_rounded_to_the_nearest() {
        every_number::<10>();
        every_number::<7>();
    }

    /// The draws of ranks at one place, and of one rank at places next to each other, are independent.
    #[test]
    fn chance_has_no_pattern() {
        let count = 1 << 16;
        // Of a product of two numbers from -0.5 to 0.5.
        let far = 5.0 / 12.0 / f64::from(count).sqrt();
        let seeds = [0, 1, 2, 1 << 16, 1 << 32, u64::MAX].map(|word| {
            match Rounding::drawn_for([0, word, 3, 0]) {
                Rounding::Stochastic(seed) => seed,
                Rounding::Nearest => unreachable!(),
            }
        });
        for (one, other) in seeds.iter().flat_map(|one| seeds.map(|other| (*one, other))) {
            let (ours, theirs) = (Noise::new(one), Noise::new(other));
            for ahead in u32::from(one == other)..4 {
                let product = |place| ours.at(place) * theirs.at(place + ahead);
                let mean = (0..count).map(product).sum::<f64>() / f64::from(count);
                assert!(mean.abs() <= far, "{mean}: seeds {one}, {other}, {ahead} ahead");
            }
            let alike = (0..count).filter(|at| ours.at(*at) == theirs.at(*at)).count();
            assert!(one == other || alike <= 3, "{alike} alike, seeds {one}, {other}");
        }
    }
}
