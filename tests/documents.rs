//! Documents tell the truth about the repository: the paths, tests and sections that they name exist. Lines stay short.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Columns of a line of Markdown, unless it is a table's row or one word.
const COLUMNS: usize = 120;
/// A name in code with so many underscores is a test's.
const UNDERSCORES_OF_TESTS: usize = 4;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of the repository, by their paths in it.
fn files() -> Vec<String> {
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let output = Command::new("git").args(listed).current_dir(root()).output().expect("git");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).expect("UTF-8");
    paths.lines().filter(|path| root().join(path).is_file()).map(str::to_owned).collect()
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All documents but reports of benchmarks, which stay as they were written.
fn documents() -> impl Iterator<Item = (String, String)> {
    let is_document =
        |path: &String| path.ends_with(".md") && !path.starts_with("benchmarks/results/");
    files()
        .into_iter()
        .filter(is_document)
        .map(|path| (text(&path), path))
        .map(|(text, path)| (path, text))
}

/// The lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((at + 1, line))
    })
}

/// The words of a line between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Targets of a line's links.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let same = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(same).find(|one| !anchors.contains(one));
        anchors.extend(free);
    }
    let explicit = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    anchors.extend(explicit.map(|(anchor, _)| anchor.to_owned()));
    anchors
}

/// Panics if there is something to tell.
fn assert_none(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn no_line_is_too_long() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (number, line) in prose(&text) {
            // A word, such as a link, may stick out.
            let ends =
                line.char_indices().nth(COLUMNS).is_some_and(|(at, _)| line[at..].contains(' '));
            if ends && !line.starts_with('|') {
                wrong.push(format!(
                    "{path}:{number}: {}",
                    line.chars().take(80).collect::<String>()
                ));
            }
        }
    }
    assert_none("lines of more than 120 columns", &wrong);
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for (path, own) in documents() {
        let folder = Path::new(&path).parent().expect("a folder");
        for (number, line) in prose(&own) {
            for target in targets(line).filter(|target| !target.contains("://")) {
                let (file, anchor) = target
                    .split_once('#')
                    .map_or((target, None), |(file, anchor)| (file, Some(anchor)));
                let to = if file.is_empty() { PathBuf::from(&path) } else { folder.join(file) };
                let is_there = root().join(&to).exists();
                let leads =
                    is_there && anchor.is_none_or(|anchor| anchors(&text(&to)).contains(anchor));
                if !leads {
                    wrong.push(format!("{path}:{number}: {target}"));
                }
            }
        }
    }
    assert_none("links that lead nowhere", &wrong);
}

#[test]
fn every_path_that_a_document_names_exists() {
    let tops = [
        "src/",
        "bpf/",
        "tests/",
        "docs/",
        "scripts/",
        "mpi-tests/",
        "benchmarks/",
        "include/",
        "dist/",
        ".ci/",
    ];
    let is_plain =
        |path: &&str| path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let has_gap = |path: &&str| ["NAME", "DATE"].iter().any(|gap| path.contains(gap));
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (number, line) in prose(&text) {
            let named = quoted(line).filter(|named| tops.iter().any(|top| named.starts_with(top)));
            for named in named
                .filter(is_plain)
                .filter(|named| !has_gap(named))
                .filter(|named| !root().join(named).exists())
            {
                wrong.push(format!("{path}:{number}: {named}"));
            }
        }
    }
    assert_none("paths that are not there", &wrong);
}

#[test]
fn every_document_that_a_source_names_exists() {
    let mut wrong = Vec::new();
    let is_source = |path: &String| {
        [".rs", ".h", ".c", ".sh", ".py"].iter().any(|end| path.ends_with(end))
            && !path.ends_with("tests/documents.rs")
    };
    for path in files().into_iter().filter(is_source) {
        for (at, line) in text(&path).lines().enumerate() {
            for (start, _) in line.match_indices("docs/") {
                let is_name = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
                let named: String = line[start..].chars().take_while(|c| is_name(*c)).collect();
                let named = named.trim_end_matches('.');
                // Not another project's, nor a pattern.
                let is_ours = !line[..start].ends_with(is_name) || line[..start].ends_with("../");
                if is_ours && named.ends_with(".md") && !root().join(named).exists() {
                    wrong.push(format!("{path}:{}: {named}", at + 1));
                }
            }
        }
    }
    assert_none("documents that are not there", &wrong);
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut functions = BTreeSet::new();
    for path in files().into_iter().filter(|path| path.ends_with(".rs")) {
        let text = text(&path);
        let named = text.split("fn ").skip(1);
        let end = |rest: &str| rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        functions.extend(named.filter_map(|rest| end(rest).map(|end| rest[..end].to_owned())));
    }
    let is_test = |name: &&str| {
        name.matches('_').count() >= UNDERSCORES_OF_TESTS
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (number, line) in prose(&text) {
            let names = quoted(line).map(|name| name.rsplit("::").next().unwrap_or(name));
            for name in names.filter(is_test).filter(|name| !functions.contains(*name)) {
                wrong.push(format!("{path}:{number}: {name}"));
            }
        }
    }
    assert_none("tests that are not there", &wrong);
}

#[test]
fn every_test_program_is_in_the_table() {
    let table = text("docs/contributing/testing.md");
    let is_program = |path: &&str| {
        !path.contains('/') && [".c", ".cpp", ".f90"].iter().any(|end| path.ends_with(end))
    };
    let mut wrong = Vec::new();
    for path in files() {
        let program = path.strip_prefix("mpi-tests/").filter(is_program);
        let name = program.and_then(|program| program.split('.').next());
        if name.is_some_and(|name| !table.contains(&format!("`{name}`"))) {
            wrong.push(path);
        }
    }
    assert_none("programs that docs/contributing/testing.md does not name", &wrong);
}

#[test]
fn every_rule_that_mutations_take_out_is_in_the_table() {
    let table = text("docs/running/reliability.md");
    let mut wrong = Vec::new();
    for path in files().into_iter().filter(|path| path.starts_with("tests/mutations/")) {
        let patch = text(&path);
        let said = |what| patch.lines().find_map(|line| line.strip_prefix(what)).unwrap_or("?");
        let row = format!("| {} | `{}` |", said("Rule: "), said("Test: "));
        if !table.lines().any(|line| line == row) {
            wrong.push(format!("{path}: {row}"));
        }
    }
    assert_none("rules that docs/running/reliability.md lacks", &wrong);
}

/// The module is built and installed without cargo, so its files have the version, too.
#[test]
fn the_module_is_of_the_version_of_the_library() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for path in files().into_iter().filter(|path| path.starts_with("kmod/")) {
        let text = text(&path);
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        let parts = |number: &&str| number.split('.').filter(|part| !part.is_empty()).count();
        for version in numbers.filter(|number| parts(number) == 3) {
            found += 1;
            if version != env!("CARGO_PKG_VERSION") {
                wrong.push(format!("{path}: {version}"));
            }
        }
    }
    assert_ne!(found, 0);
    assert_none("other versions than in Cargo.toml", &wrong);
}
