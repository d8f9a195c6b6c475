//! The options of a lab's network.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};

/// Most hosts of a lab: as many as a group of foldback can have members.
pub const MAX_HOSTS: u64 = 64;

/// Options of the network, the same for `lab up` and `lab run`.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = "Network")]
pub struct Settings {
    /// Largest IP packet, on every link
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u32).range(576..=9000))]
    pub mtu: u32,

    /// Networks that join all hosts: MPI uses the first, eth0; the others are eth1 at 10.77.1.N, ...
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=4))]
    #[serde(default = "one")]
    pub networks: u8,

    /// Speed of every link of eth0, in each direction, such as 1gbit [default: as fast as it goes]
    #[arg(long)]
    pub rate: Option<Rate>,

    /// Time of a frame on eth0 from one host to another, one way, such as 25us; needs the kernel's netem [default: none]
    ///
    /// A frame waits before the link to the host that it goes to.
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub delay: Option<Delay>,

    /// Of frames on the first network.
    #[command(flatten)]
    #[serde(flatten)]
    pub faults: Faults,

    /// Number that selects one of the possible sequences of faults
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

fn one() -> u8 {
    1
}

/// The faults of frames on eth0.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Share of frames that are lost, such as 1%
    #[arg(long, value_name = "SHARE", default_value_t)]
    pub loss: Share,

    /// Share of frames that arrive twice
    #[arg(long, value_name = "SHARE", default_value_t)]
    pub dup: Share,

    /// Share of frames that arrive after the frame that follows them
    #[arg(long, value_name = "SHARE", default_value_t)]
    pub reorder: Share,

    /// Share of frames that arrive with one bit flipped
    #[arg(long, value_name = "SHARE", default_value_t)]
    pub corrupt: Share,

    /// Frames that suffer the faults: all, TCP among them, which repairs itself but slowly; udp, over IPv4,
    /// as foldback's own; udp:PORT, to that port
    #[arg(long, value_name = "WHICH", default_value_t)]
    pub faults_on: FaultsOn,

    /// Only frames of more bytes than this, their Ethernet header included: as on a path that drops large ones
    #[arg(long, value_name = "BYTES", default_value_t, value_parser = clap::value_parser!(u32).range(..=9216))]
    #[serde(default)]
    pub faults_above: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { mtu: 1500, networks: 1, rate: None, delay: None, faults: Faults::default(), seed: 1 }
    }
}

impl Faults {
    fn shares(&self) -> [(&'static str, Share); 4] {
        [
            ("loss", self.loss),
            ("dup", self.dup),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }

    /// Whether any frame is to suffer any fault.
    pub fn any(&self) -> bool {
        self.shares().iter().any(|(_, share)| share.0 > 0.0)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.any() {
            return write!(f, "no faults");
        }
        for (name, share) in self.shares() {
            if share.0 > 0.0 {
                write!(f, "{name} {share}, ")?;
            }
        }
        write!(f, "faults on {}", self.faults_on)?;
        if self.faults_above > 0 {
            write!(f, " above {} bytes", self.faults_above)?;
        }
        Ok(())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mtu {}", self.mtu)?;
        if self.networks > 1 {
            write!(f, ", {} networks", self.networks)?;
        }
        if let Some(rate) = &self.rate {
            write!(f, ", rate {}", rate.text)?;
        }
        if let Some(delay) = &self.delay {
            write!(f, ", delay {}", delay.text)?;
        }
        if self.faults.any() {
            write!(f, ", {}, seed {}", self.faults, self.seed)?;
        }
        Ok(())
    }
}

/// The frames that suffer the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultsOn {
    /// Each of them.
    #[default]
    All,
    /// UDP over IPv4.
    Udp,
    /// To this port.
    UdpPort(u16),
}

impl FromStr for FaultsOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = || text.strip_prefix("udp:")?.parse().ok().filter(|port| *port > 0);
        match text {
            "all" => Ok(Self::All),
            "udp" => Ok(Self::Udp),
            _ => port().map(Self::UdpPort).ok_or_else(|| "write all, udp or udp:PORT".into()),
        }
    }
}

impl fmt::Display for FaultsOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "all"),
            Self::Udp => write!(f, "udp"),
            Self::UdpPort(port) => write!(f, "udp:{port}"),
        }
    }
}

/// A share of all frames, 0 to 1, written in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share(pub f64);

impl Share {
    /// Fixed point with 32 bits after the point, which is what the BPF program compares with.
    pub fn fixed_point(self) -> u64 {
        (self.0 * (1u64 << 32) as f64).round() as u64
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A bare number could mean a share or a percentage: only 0 is safe to guess.
        let percent = match text.strip_suffix('%') {
            Some(number) => number.parse::<f64>().ok(),
            None if text == "0" => Some(0.0),
            None => None,
        };
        match percent {
            Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent / 100.0)),
            _ => Err("write a percentage from 0% to 100%, such as 0.5%".into()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ten significant digits hide what dividing by 100 and back does to 0.07.
        write!(f, "{}%", (self.0 * 100.0 * 1e8).round() / 1e8)
    }
}

/// A number with one of these units behind it, such as 2.5gbit; 0 if it is none.
fn in_units(text: &str, units: &[(&str, f64)]) -> f64 {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, name) = text.split_at(digits);
    let unit = units.iter().find(|unit| unit.0 == name);
    unit.map_or(0.0, |unit| number.parse::<f64>().unwrap_or(0.0) * unit.1)
}

/// The speed of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// As the user wrote it.
    pub text: String,
    /// In a second.
    pub bits: u64,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
        let bits = in_units(&text.to_ascii_lowercase(), &units);
        // Below 8 kbit a single large frame takes longer than TCP waits for it.
        if (8e3..=1e12).contains(&bits) {
            Ok(Self { text: text.to_owned(), bits: bits as u64 })
        } else {
            Err("write a speed from 8kbit to 1000gbit, such as 100mbit".into())
        }
    }
}

/// The time of a frame from one host to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// As the user wrote it.
    pub text: String,
    /// One way.
    pub nanoseconds: u64,
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanoseconds = in_units(text, &[("us", 1e3), ("ms", 1e6), ("s", 1e9)]);
        if (1e3..=1e9).contains(&nanoseconds) {
            Ok(Self { text: text.to_owned(), nanoseconds: nanoseconds.round() as u64 })
        } else {
            Err("write a time from 1us to 1s, such as 25us".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Delay, FaultsOn, Rate, Settings, Share};

    #[test]
    fn shares_are_percentages_and_nothing_else() {
        assert_eq!("1%".parse::<Share>().unwrap().fixed_point(), 42_949_673);
        assert_eq!("100%".parse::<Share>().unwrap().fixed_point(), 1 << 32);
        assert_eq!("0.07%".parse::<Share>().unwrap().to_string(), "0.07%");
        assert_eq!("0".parse::<Share>(), Ok(Share(0.0)));
        for wrong in ["1", "0.01", "-1%", "101%", "%", "x%", "NaN%", ""] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn faults_befall_what_is_named() {
        for right in ["all", "udp", "udp:17717"] {
            assert_eq!(right.parse::<FaultsOn>().unwrap().to_string(), right);
        }
        for wrong in ["", "tcp", "udp:", "udp:0", "udp:65536", "17717"] {
            assert!(wrong.parse::<FaultsOn>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_need_a_unit_and_a_sensible_size() {
        assert_eq!("2.5gbit".parse::<Rate>().unwrap().bits, 2_500_000_000);
        assert_eq!("100Mbit".parse::<Rate>().unwrap().bits, 100_000_000);
        for wrong in ["1", "1kbit", "gbit", "1gbyte", "-1gbit", "9999gbit"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn delays_need_a_unit_and_a_sensible_length() {
        let nanoseconds = |text: &str| text.parse::<Delay>().unwrap().nanoseconds;
        assert_eq!(
            ["25us", "2.5us", "1ms", "1s"].map(nanoseconds),
            [25_000, 2_500, 1_000_000, 1_000_000_000]
        );
        for wrong in
            ["", "0", "25", "us", "0us", "999ns", "0.9us", "-1us", "2s", "1m", "25 us", "1.1.1us"]
        {
            assert!(wrong.parse::<Delay>().is_err(), "{wrong}");
        }
    }

    /// As in the record of a lab that an earlier version has made.
    #[test]
    fn settings_without_a_delay_have_none() {
        let mut record = serde_json::to_value(Settings::default()).unwrap();
        record.as_object_mut().unwrap().remove("delay");
        assert_eq!(serde_json::from_value::<Settings>(record).unwrap(), Settings::default());
    }

    #[test]
    fn settings_show_only_what_was_asked_for() {
        let mut settings = Settings::default();
        assert_eq!(settings.to_string(), "mtu 1500");
        settings.faults.loss = Share(0.01);
        assert_eq!(settings.to_string(), "mtu 1500, loss 1%, faults on all, seed 1");
        settings.faults.faults_above = 1000;
        assert!(settings.to_string().contains("faults on all above 1000 bytes"));
        settings.networks = 2;
        assert!(settings.to_string().starts_with("mtu 1500, 2 networks, loss"));
        settings.rate = Some("1gbit".parse().unwrap());
        settings.delay = Some("25us".parse().unwrap());
        assert!(settings.to_string().contains("2 networks, rate 1gbit, delay 25us, loss"));
    }
}
