//! The quantization of sums, and its options (`FOLDBACK_QUANTIZE`).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::leaf::quantize::Width;

/// Numbers of a block, unless said otherwise: an exponent of two bytes is little beside them.
const BLOCK: usize = 256;
const MOST_BLOCK: usize = 1 << 20;
/// Shortest messages that are quantized, in bytes, unless said otherwise. Shorter ones, dot products and
/// the like, are as fast by the exact way.
const MIN: usize = 64 << 10;

/// How sums of floating point are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantize {
    /// The type of integers that are sent.
    pub width: Width,
    /// Numbers that have an exponent in common.
    pub block: usize,
    /// Bytes of the shortest message that is quantized.
    pub min: usize,
    /// Rounded by chance, from this seed.
    pub stochastic: Option<u64>,
    /// The rounding error of a sum is added to the next sum of the same length.
    pub error_feedback: bool,
}

impl Quantize {
    /// The form of the setting.
    pub const FORM: &'static str =
        "off, or fixed32, int16 or int8, with ,block=N ,min=BYTES ,stochastic ,error_feedback";

    /// The value of the setting, which may be no quantization; `None`: it is no [`Quantize::FORM`].
    pub fn read(text: &str) -> Option<Option<Self>> {
        if text == "off" { Some(None) } else { text.parse().ok().map(Some) }
    }
}

impl FromStr for Quantize {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(',');
        let width = match words.next() {
            Some("fixed32") => Width::Int32,
            Some("int16") => Width::Int16,
            Some("int8") => Width::Int8,
            _ => return Err(()),
        };
        let mut quantize =
            Self { width, block: BLOCK, min: MIN, stochastic: None, error_feedback: false };
        for word in words {
            match word.split_once('=') {
                None if word == "error_feedback" => quantize.error_feedback = true,
                None if word == "stochastic" => quantize.stochastic = Some(0),
                Some(("stochastic", seed)) => {
                    quantize.stochastic = Some(seed.parse().map_err(drop)?);
                }
                Some(("min", bytes)) => quantize.min = bytes.parse().map_err(drop)?,
                Some(("block", numbers)) => {
                    quantize.block = numbers.parse().map_err(drop)?;
                    if !(1..=MOST_BLOCK).contains(&quantize.block) {
                        return Err(());
                    }
                }
                _ => return Err(()),
            }
        }
        Ok(quantize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_and_what_else_is_said() {
        let of = |text: &str| text.parse::<Quantize>();
        let plain = Quantize {
            width: Width::Int16,
            block: BLOCK,
            min: MIN,
            stochastic: None,
            error_feedback: false,
        };
        assert_eq!(of("int16"), Ok(plain));
        assert_eq!(of("int8,stochastic").map(|quantize| quantize.stochastic), Ok(Some(0)));
        let all = Quantize {
            width: Width::Int32,
            block: 32,
            min: 0,
            stochastic: Some(7),
            error_feedback: true,
        };
        assert_eq!(of("fixed32,block=32,min=0,stochastic=7,error_feedback"), Ok(all));
        for wrong in [
            "",
            "int4",
            "int16,block",
            "int16,block=0",
            "int16,block=x",
            "int16,size=4",
            "int16,",
            "int8,stochastic=x",
            "int8,error_feedback=1",
        ] {
            assert_eq!(of(wrong), Err(()), "{wrong}");
        }
    }
}
