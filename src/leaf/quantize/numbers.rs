//! Numbers and integers as they lie in memory, and what becomes of one.

/// Numbers as they lie in memory.
pub trait Real<const SIZE: usize>: Copy {
    fn load(bytes: &[u8; SIZE]) -> Self;
    /// The exponent, as the format has it.
    fn exponent(self) -> u32;
    /// How many of the units of a block with this exponent is 1, if its greatest number has so many `bits`.
    /// In two steps, each of which is in the range of doubles.
    fn scale(exponent: u32, bits: u32) -> [f64; 2];
    /// The integer next to it after `noise` is added, of ties the even one.
    fn scaled(self, scale: [f64; 2], noise: f64) -> i32;
    fn wide(self) -> f64;
    /// What of it is left when that integer has been taken, of blocks with this `unit`.
    fn without(self, integer: i32, scale: [f64; 2], unit: f64) -> f64;
    /// Such a unit.
    fn unit(exponent: u32, bits: u32) -> f64;
    /// A number, rounded.
    fn store(number: f64) -> [u8; SIZE];
}

macro_rules! real {
    ($real:ident, $mantissa:literal, $bias:literal) => {
        impl Real<{ size_of::<$real>() }> for $real {
            #[inline(always)]
            fn load(bytes: &[u8; size_of::<$real>()]) -> Self {
                Self::from_ne_bytes(*bytes)
            }

            #[inline(always)]
            fn exponent(self) -> u32 {
                ((self.to_bits() << 1) >> ($mantissa + 1)) as u32
            }

            fn scale(exponent: u32, bits: u32) -> [f64; 2] {
                let power = -unit_exponent(exponent, bits, $bias);
                [power / 2, power - power / 2].map(power_of_two)
            }

            // Scaling is exact, but for what comes to nothing. The sum is in units of 1, so it is rounded to
            // that, and its lowest bits are the integer's.
            #[inline(always)]
            fn scaled(self, [first, second]: [f64; 2], noise: f64) -> i32 {
                const SHIFT: f64 = 1.5 * (1_u64 << 52) as f64;
                (Self::wide(self) * first * second + noise + SHIFT).to_bits() as i32
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }

            // In units, since the integer's number may be greater than the greatest. What comes to nothing in
            // units is left as it is.
            #[inline(always)]
            fn without(self, integer: i32, [first, second]: [f64; 2], unit: f64) -> f64 {
                let whole = Self::wide(self);
                let rest = (whole * first * second - f64::from(integer)) * unit;
                if integer == 0 { whole } else { rest }
            }

            fn unit(exponent: u32, bits: u32) -> f64 {
                power_of_two(unit_exponent(exponent, bits, $bias))
            }

            #[inline(always)]
            fn store(number: f64) -> [u8; size_of::<$real>()] {
                (number as Self).to_ne_bytes()
            }
        }
    };
}

real!(f32, 23, 127);
real!(f64, 52, 1023);

/// Subnormals are of the same unit as the least normal numbers.
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

/// What is added to numbers before they are rounded.
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
    /// Other seeds, others.
    pub fn new(seed: u64) -> Self {
        Self { words: [seed as u32, (seed >> 32) as u32] }
    }
}

impl Dither for Noise {
    /// Two rounds of a hash of 32 bits, which vectors have multiplications for.
    /// (lowbias32: Chris Wellons, Prospecting for Hash Functions, 2018.)
    #[inline(always)]
    fn at(self, place: u32) -> f64 {
        let hash = mixed(mixed(place ^ self.words[0]) ^ self.words[1]);
        f64::from(hash as i32) / (1_u64 << 32) as f64
    }
}

#[inline(always)]
fn mixed(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x7feb_352d);
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(0x846c_a68b);
    hash ^ hash >> 16
}
