//! Uses between the modules of the crate go down only, in the order of the table in docs/contributing/architecture.md.
//! Collectives are named in their own files only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use foldback::call::COLLECTIVES;
use proc_macro2::{TokenStream, TokenTree};

/// A module and what it uses, with a file that does.
type Uses = BTreeMap<String, BTreeMap<String, PathBuf>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The modules, from the top down: the table's first column.
fn order() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/contributing/architecture.md"))
        .expect("the document");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `src/"));
    let name = |row: &str| row.split(['/', '`', '.']).next().unwrap_or_default().to_owned();
    rows.map(name).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names behind `crate::` (and `foldback::`, in the command), those in braces too.
fn names(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => names(group.stream(), found),
            TokenTree::Ident(ident)
                if (ident == "crate" || ident == "foldback")
                    && is_colon(at + 1)
                    && is_colon(at + 2) =>
            {
                match tokens.get(at + 3) {
                    Some(TokenTree::Ident(name)) => drop(found.insert(name.to_string())),
                    Some(TokenTree::Group(group)) => firsts(group.stream(), found),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// The first name of each path in the braces of a `use`.
fn firsts(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let mut begins = true;
    for token in tokens {
        match token {
            TokenTree::Ident(name) if begins => drop(found.insert(name.to_string())),
            TokenTree::Punct(ref punct) if punct.as_char() == ',' => {
                begins = true;
                continue;
            }
            _ => {}
        }
        begins = false;
    }
}

fn uses(order: &[String]) -> Uses {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut all = Uses::new();
    for file in files {
        let inside = file.strip_prefix(root().join("src")).expect("a source").to_owned();
        let module = inside.iter().next().expect("a name").to_string_lossy();
        let module = module.trim_end_matches(".rs").to_owned();
        let text = std::fs::read_to_string(&file).expect("a source");
        let mut found = BTreeSet::new();
        names(text.parse().expect("Rust"), &mut found);
        let used = all.entry(module.clone()).or_default();
        for name in found.into_iter().filter(|name| *name != module && order.contains(name)) {
            used.insert(name, inside.clone());
        }
    }
    all
}

#[test]
fn modules_use_only_what_stands_below_them() {
    let order = order();
    let place = |module: &str| order.iter().position(|other| other == module);
    let mut wrong = Vec::new();
    for (module, used) in uses(&order) {
        // The roots of the library and of the command name all modules.
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(at) = place(&module) else {
            wrong.push(format!("src/{module} is not in the table"));
            continue;
        };
        for (name, file) in used {
            if place(&name).is_some_and(|below| below < at) {
                wrong.push(format!(
                    "src/{} uses {name}, which stands above {module}",
                    file.display()
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/contributing/architecture.md, \"Modules\":\n{}",
        wrong.join("\n")
    );
}

/// Collectives that are named: `Collective::Bcast`.
fn collectives(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let word = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            collectives(group.stream(), found);
        }
        let name = word(at + 3);
        if word(at) == "Collective" && COLLECTIVES.iter().any(|one| one.name() == name) {
            found.insert(name);
        }
    }
}

#[test]
fn collectives_are_named_in_their_own_files_only() {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(root().join("src")).expect("a source").to_owned();
        let mut found = BTreeSet::new();
        let text = std::fs::read_to_string(&file).expect("a source");
        collectives(text.parse().expect("Rust"), &mut found);
        if inside.starts_with("dispatch") {
            // The integers of quantized sums are measured as those of an Allreduce.
            found.remove("Allreduce");
        }
        if !inside.starts_with("collectives") && !found.is_empty() {
            wrong.push(format!("src/{}: {found:?}", inside.display()));
        }
    }
    assert!(wrong.is_empty(), "docs/decisions/50-one-file-a-collective.md:\n{}", wrong.join("\n"));
}

#[test]
fn named_collectives_are_seen() {
    let text = "fn f(of: Collective) -> bool { matches!(of, Collective::Bcast | Collective::ALL) }";
    let mut found = BTreeSet::new();
    collectives(text.parse().expect("Rust"), &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Bcast"]);
}

#[test]
fn every_kind_of_use_is_seen() {
    let text = "use crate::{a, b::{c, d}, e as f}; fn g() { crate::h::i(); } macro_rules! m { () => { foldback::j() } }
        // crate::k
        const L: &str = \"crate::l\";";
    let mut found = BTreeSet::new();
    names(text.parse().expect("Rust"), &mut found);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a", "b", "e", "h", "j"]);
}
