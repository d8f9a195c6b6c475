//! The file of a site: settings for all users, or for some programs or users. A process reads it once.
//!
//! ```text
//! FOLDBACK_NET = 10.1.0.0/16      # counts everywhere
//! [program gmx_mpi lmp*]          # by the names of executables
//! FOLDBACK = off
//! [user alice 1001]               # by name or number
//! FOLDBACK_LOG = info
//! ```
//!
//! The last line that counts wins. An empty value is the default.

use std::cell::LazyCell;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;

use nix::unistd::{User, geteuid};

use super::{Value, file};

/// The setting that names another file. If it is empty, no file is read.
pub const CONF: &str = "FOLDBACK_CONF";
/// The file, unless [`CONF`] says otherwise.
pub const DEFAULT_PATH: &str = "/etc/foldback.conf";
/// Longest file: every setting for some dozens of programs.
const MOST_BYTES: usize = 64 << 10;

/// The contents of a file, as far as they make sense.
#[derive(Debug, Default)]
pub struct Site {
    /// The file's path; `None`: no file is to be read.
    pub path: Option<String>,
    /// Its settings.
    pub lines: Vec<Line>,
    /// The first thing that is wrong with it, in one line with path and number.
    pub wrong: Option<String>,
    /// There is a file.
    pub is_there: bool,
}

/// A line that sets something.
#[derive(Debug)]
pub struct Line {
    /// The name of the setting, or so it seems.
    pub name: String,
    /// Its value, with path and number.
    pub value: Value,
    /// The section's head; `None`: it is above all sections.
    pub section: Option<String>,
    /// Whether it counts for this process.
    pub counts: bool,
}

/// The file of this process's site.
pub fn site() -> &'static Site {
    static SITE: LazyLock<Site> = LazyLock::new(|| match std::env::var_os(CONF) {
        None => Site::read(DEFAULT_PATH.as_ref(), false),
        Some(none) if none.is_empty() => Site::default(),
        Some(path) => Site::read(path.as_ref(), true),
    });
    &SITE
}

impl Site {
    /// The value of a setting by the last line that counts.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let line = self.lines.iter().rev().find(|line| line.counts && line.name == name);
        line.map(|line| &line.value)
    }

    /// Reads a file, which may be missing unless the user has named it.
    fn read(path: &Path, is_named: bool) -> Self {
        let shown = path.display().to_string();
        let wrong = |why: String| Self {
            path: Some(shown.clone()),
            wrong: Some(format!("{shown}: {why}")),
            is_there: true,
            ..Self::default()
        };
        match file::read(path, MOST_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound && !is_named => {
                Self { path: Some(shown), ..Self::default() }
            }
            Err(error) => wrong(error.to_string()),
            Ok((bytes, about)) => match distrust(about.uid(), about.mode(), geteuid().as_raw()) {
                Some(why) => wrong(why.into()),
                None => Self::parse(&shown, &bytes, &Caller::own()),
            },
        }
    }

    /// As a process of nobody's would read it.
    #[cfg(test)]
    pub(super) fn of_text(text: &str) -> Self {
        let (program, user) =
            (LazyCell::new(String::new as fn() -> _), LazyCell::new((|| None) as _));
        Self::parse("text", text.as_bytes(), &Caller { program, uid: u32::MAX, user })
    }

    fn parse(path: &str, bytes: &[u8], caller: &Caller) -> Self {
        let mut site = Self { path: Some(path.into()), is_there: true, ..Self::default() };
        let (mut section, mut counts) = (None, true);
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let place = format!("{path}:{}", index + 1);
            match Parsed::of(line) {
                Some(Parsed::Nothing) => {}
                Some(Parsed::Head(head)) => {
                    counts = caller.is_in(head);
                    section = Some(head.to_owned());
                }
                Some(Parsed::Setting(name, text)) => site.lines.push(Line {
                    name: name.into(),
                    value: Value { text: text.into(), place: Some(place) },
                    section: section.clone(),
                    counts,
                }),
                None => {
                    const FORM: &str = "a line is NAME = VALUE, [program NAME …], [user NAME …] or # with a comment";
                    site.wrong.get_or_insert_with(|| format!("{place}: {FORM}"));
                    // Whatever head it was to be, the lines below are not for all.
                    counts &= !line.trim_ascii_start().starts_with(b"[");
                }
            }
        }
        site
    }
}

/// Why a process does not believe a file: others may change it. Root's processes are the most careful, the agent among
/// them.
fn distrust(owner: u32, mode: u32, user: u32) -> Option<&'static str> {
    if mode & 0o002 != 0 {
        return Some("everybody may write to it: chmod o-w");
    }
    let is_closed = user != 0 || (owner == 0 && mode & 0o020 == 0);
    (!is_closed).then_some("root reads no file that others may write to: chown root, chmod go-w")
}

/// A line of a file.
#[derive(Debug, PartialEq, Eq)]
enum Parsed<'a> {
    Nothing,
    /// The head of a section, without brackets.
    Head(&'a str),
    Setting(&'a str, &'a str),
}

impl<'a> Parsed<'a> {
    /// `None`: it is none.
    fn of(line: &'a [u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok().filter(|line| !line.contains('\0'))?;
        let is_comment = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
        let comment = line.match_indices('#').map(|(at, _)| at).find(|at| is_comment(*at));
        let line = line[..comment.unwrap_or(line.len())].trim();
        if line.is_empty() {
            return Some(Self::Nothing);
        }
        if let Some(rest) = line.strip_prefix('[') {
            let head = rest.strip_suffix(']')?;
            let mut words = head.split_whitespace();
            let is_kind = matches!(words.next(), Some("program" | "user"));
            return (is_kind && words.next().is_some()).then_some(Self::Head(head.trim()));
        }
        let (name, text) = line.split_once('=')?;
        let (name, text) = (name.trim_end(), text.trim_start());
        let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
        is_name.then_some(Self::Setting(name, text))
    }
}

/// The process that sections are compared with. Its names are looked up when a section asks for them.
struct Caller {
    /// The file name of its executable.
    program: LazyCell<String>,
    uid: u32,
    /// The name of its user.
    user: LazyCell<Option<String>>,
}

impl Caller {
    fn own() -> Self {
        Self {
            program: LazyCell::new(|| {
                let path = std::env::current_exe().unwrap_or_default();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // The system says so of a file that has been replaced.
                name.strip_suffix(" (deleted)").unwrap_or(&name).into()
            }),
            uid: geteuid().as_raw(),
            user: LazyCell::new(|| Some(User::from_uid(geteuid()).ok()??.name)),
        }
    }

    /// Whether a section with this head is for it.
    fn is_in(&self, head: &str) -> bool {
        let mut words = head.split_whitespace();
        match words.next() {
            Some("program") => words.any(|pattern| matches(pattern, &self.program)),
            _ => words.any(|name| match name.parse::<u32>() {
                Ok(uid) => uid == self.uid,
                Err(_) => self.user.as_deref() == Some(name),
            }),
        }
    }
}

/// Whether a name is what a pattern says, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Site {
        let program = LazyCell::new((|| "gmx_mpi".into()) as fn() -> String);
        let user = LazyCell::new((|| Some("alice".into())) as fn() -> Option<String>);
        Site::parse("conf", text, &Caller { program, uid: 1001, user })
    }

    fn value(text: &str, name: &str) -> Option<(String, String)> {
        let site = parse(text.as_bytes());
        assert_eq!(site.wrong, None);
        site.value(name).map(|value| (value.text.clone(), value.place.clone().unwrap()))
    }

    fn at(text: &str, number: u32) -> Option<(String, String)> {
        Some((text.into(), format!("conf:{number}")))
    }

    #[test]
    fn lines_may_have_spaces_and_comments() {
        let text = "# A site's\n\n A=1\n\tB =  x,y #no\n C = a#b = c\r\nD=\n";
        assert_eq!(value(text, "A"), at("1", 3));
        assert_eq!(value(text, "B"), at("x,y", 4));
        assert_eq!(value(text, "C"), at("a#b = c", 5));
        assert_eq!(value(text, "D"), at("", 6));
        assert_eq!(value(text, "E"), None);
        assert_eq!(value("", "A"), None);
        assert_eq!(value("A = 1", "A"), at("1", 1));
    }

    #[test]
    fn the_last_line_that_counts_wins() {
        assert_eq!(value("A=1\nA=2\n", "A"), at("2", 2));
        assert_eq!(value("A=1\n[program lmp]\nA=2\n[ user  alice ]\nA=3", "A"), at("3", 5));
        assert_eq!(value("A=1\n[user alice]\nA=2\n[program other]\nA=3", "A"), at("2", 3));
        assert_eq!(value("[user bob]\nA=1", "A"), None);
    }

    #[test]
    fn sections_are_for_programs_and_users() {
        for (head, is_for) in [
            ("program gmx_mpi", true),
            ("program lmp gmx_mpi # both", true),
            ("program gmx*", true),
            ("program gmx", false),
            ("program alice", false),
            ("user alice", true),
            ("user 1001", true),
            ("user bob 1001", true),
            ("user 1002", false),
            ("user al*", false),
            ("user gmx_mpi", false),
        ] {
            let head = head.split_once(" #").map_or(head, |(head, _)| head);
            assert_eq!(value(&format!("[{head}] # c\nA=1"), "A").is_some(), is_for, "{head}");
        }
    }

    #[test]
    fn a_star_is_anything() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("*", "x", true),
            ("a*", "a", true),
            ("*b", "ab", true),
            ("a*a", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("", "x", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
        assert!(!matches(&"*a".repeat(10_000), &"a".repeat(9_999)));
    }

    #[test]
    fn a_line_of_no_form_is_told_by_its_number_and_the_others_are_kept() {
        for line in [
            &b"FOLDBACK"[..],
            b"= 1",
            b"export FOLDBACK=off",
            b"[program]",
            b"[program gmx_mpi",
            b"[group x]",
            b"[]",
            b"A = \xff",
            b"A = \0",
        ] {
            let site = parse(&[b"B = 1\n", line, b"\n?\nC = 2\n"].concat());
            let wrong = site.wrong.as_deref().unwrap_or_default();
            assert!(wrong.starts_with("conf:2: a line is NAME = VALUE, "), "{wrong}");
            assert_eq!(site.value("B").map(|value| &*value.text), Some("1"));
            // It would be another program's, if the line was to be the head of a section.
            assert_eq!(site.value("C").is_some(), line[0] != b'[');
        }
    }

    #[test]
    fn files_that_others_write_to_are_not_believed() {
        let believes = |owner, mode, user| distrust(owner, mode, user).is_none();
        assert!(believes(0, 0o100_644, 0) && believes(0, 0o100_600, 0));
        assert!(!believes(0, 0o100_666, 0) && !believes(0, 0o100_664, 0));
        assert!(!believes(1000, 0o100_644, 0));
        assert!(believes(0, 0o100_644, 1000) && believes(1001, 0o100_664, 1000));
        assert!(!believes(1000, 0o100_646, 1000));
    }

    #[test]
    fn a_file_may_be_missing_unless_it_is_named() {
        let path = Path::new("/nonexistent/foldback.conf");
        let site = Site::read(path, false);
        assert!(!site.is_there && site.wrong.is_none() && site.lines.is_empty());
        let wrong = Site::read(path, true).wrong.unwrap_or_default();
        assert!(wrong.starts_with("/nonexistent/foldback.conf: No such file"), "{wrong}");
        let wrong = Site::read("/dev/zero".as_ref(), false).wrong;
        assert_eq!(wrong.as_deref(), Some("/dev/zero: it is no regular file"));
    }
}
