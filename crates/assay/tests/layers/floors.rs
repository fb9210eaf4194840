//! The floors of `bench`: which of its files may use which.
//!
//! An arrow leads from a file to a file that it names in a path: in a `use` item, in code, in a macro or in a
//! test. Comments, visibilities and declarations of modules are not arrows. A name that a file receives from
//! `use super::*` is not followed further, because the import itself is an arrow. Two kinds of items are not
//! read: `use {...}` without a path before the braces, and `extern crate self`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{root, sources};

/// The floors of `bench`, the lowest first. A file belongs to the floor whose name its path starts with, to
/// the first of them if there are several, and may use the files of its own floor and of those below. The
/// root of the crate is above all of them: a file names another one where it is, not where the crate exports
/// it.
pub(crate) const FLOORS: [&str; 7] =
    ["platform", "benchmark", "primitive::kit", "primitive", "catalogue", "sample", "run"];

/// A module: its path from the root of its crate.
type Module = Vec<String>;

#[test]
fn every_file_of_bench_uses_its_own_floor_and_those_below_only() {
    let arrows = arrows(&root().join("crates/bench/src"));
    let pairs = arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let upward: Vec<String> = pairs
        .filter(|(from, to)| floor(from) < floor(to))
        .map(|(from, to)| format!("{} -> {}", from.join("::"), to.join("::")))
        .collect();
    assert!(upward.is_empty(), "move what is named into a lower floor: {upward:#?}");
}

#[test]
fn no_file_of_bench_leads_back_to_itself() {
    let arrows = arrows(&root().join("crates/bench/src"));
    let cycles: Vec<Vec<String>> =
        cycles(&arrows).iter().map(|cycle| cycle.iter().map(|module| module.join("::")).collect()).collect();
    assert!(cycles.is_empty(), "move what these files share into a file of its own: {cycles:#?}");
}

#[test]
fn arrows_are_found_in_items_code_macros_and_tests() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("low")).unwrap();
    write("lib.rs", "mod low; mod a; mod b; mod c; mod d; mod e; pub use a::A;");
    write("low/mod.rs", "mod deep; use deep as under; pub use under::Deep;");
    write("low/deep.rs", "pub struct Deep; // crate::a");
    write("a.rs", "use crate::low::{Deep, deep::{self as under}}; pub struct A(under::Deep);");
    write(
        "e.rs",
        "fn e() { low::deep::f(); other::d(); } use crate::{d as other, low,}; pub(in crate::c) mod x {}",
    );
    write("b.rs", "fn b() { let text = \"crate::c\"; println!(\"{}{text}\", super::d::d()) }");
    write("c.rs", "mod tests { use super::*; fn c() { super::super::b::b::<u8>() } }");
    write("d.rs", "pub(crate) fn d() -> crate::A { std::iter::once(1).map(crate::c::c) }");
    let arrows = arrows(folder.path());
    // The root has no name.
    let found: Vec<String> = arrows
        .iter()
        .map(|(from, all)| {
            let all: Vec<String> = all.iter().map(|to| to.join("::")).collect();
            format!("{}: {}", from.join("::"), all.join(" "))
        })
        .collect();
    assert_eq!(
        found,
        [
            ": a",
            "a: low low::deep",
            "b: d",
            "c: b",
            "d:  c",
            "e: d low low::deep",
            "low: low::deep",
            "low::deep: "
        ]
    );
    let cycles = cycles(&arrows);
    assert_eq!(cycles.len(), 1);
    assert_eq!(cycles[0].iter().map(|module| module.join("::")).collect::<Vec<_>>(), ["b", "c", "d"]);
}

/// Returns the number of a module's floor.
fn floor(module: &Module) -> usize {
    let path = format!("{}::", module.join("::"));
    let floor = FLOORS.iter().position(|floor| path.starts_with(&format!("{floor}::")));
    floor.unwrap_or_else(|| {
        assert!(module.is_empty(), "{} belongs to no floor: add it to FLOORS", module.join("::"));
        FLOORS.len()
    })
}

/// Returns the files that each file names, for the files below a folder.
fn arrows(folder: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let files: BTreeMap<Module, PathBuf> =
        sources(folder).into_iter().map(|file| (module(file.strip_prefix(folder).unwrap()), file)).collect();
    let all = files.iter().map(|(module, file)| {
        let mut reader = Reader { files: &files, imported: BTreeMap::new(), named: BTreeSet::new() };
        let tokens: TokenStream = fs::read_to_string(file).unwrap().parse().unwrap();
        reader.read(tokens.clone(), module);
        // Once more, because a name may stand before the item that imports it.
        reader.read(tokens, module);
        reader.named.remove(module);
        (module.clone(), reader.named)
    });
    all.collect()
}

/// Returns the module that a file defines.
fn module(file: &Path) -> Module {
    let path = file.with_extension("");
    let mut names: Module = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

/// Finds the paths within a crate that the tokens of a file contain.
struct Reader<'a> {
    /// The files of the crate.
    files: &'a BTreeMap<Module, PathBuf>,
    /// The modules that the file imports, by the names that it uses for them.
    imported: BTreeMap<String, Module>,
    /// The files that define what the paths name.
    named: BTreeSet<Module>,
}

impl Reader<'_> {
    /// Reads the tokens of a module.
    fn read(&mut self, tokens: TokenStream, module: &Module) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, after) {
                (TokenTree::Ident(word), [TokenTree::Ident(name), TokenTree::Group(body), ..])
                    if word == "mod" =>
                {
                    self.read(body.stream(), &inside(module, &name.to_string()));
                    rest = &after[2..];
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), after @ ..])
                    if word == "use" && !is_separator(after) =>
                {
                    self.record(self.base(&name.to_string(), module), after);
                }
                // The restriction of a visibility.
                (TokenTree::Ident(word), [TokenTree::Group(group), ..])
                    if word == "pub" && group.delimiter() == Delimiter::Parenthesis =>
                {
                    rest = &after[1..];
                }
                // A path to another crate is followed too, because its second word does not begin a path.
                (TokenTree::Ident(word), _) if is_separator(after) => {
                    let base = self.base(&word.to_string(), module);
                    rest = self.follow(base, &after[2..]);
                }
                (TokenTree::Group(group), _) => self.read(group.stream(), module),
                _ => {}
            }
        }
    }

    /// Returns what the first word of a path means in a module; `None` if it is outside of this crate.
    fn base(&self, word: &str, module: &Module) -> Option<Module> {
        let child = inside(module, word);
        match word {
            "crate" => Some(Vec::new()),
            "self" => Some(module.clone()),
            "super" => Some(module[..module.len() - 1].to_vec()),
            _ if self.files.contains_key(&child) => Some(child),
            _ => self.imported.get(word).cloned(),
        }
    }

    /// Follows the paths that continue `path`, and returns the tokens after them.
    fn follow<'t>(&mut self, mut path: Option<Module>, mut tokens: &'t [TokenTree]) -> &'t [TokenTree] {
        loop {
            match tokens {
                [TokenTree::Ident(word), after @ ..] => {
                    path = path.map(|path| match word.to_string().as_str() {
                        "super" => path[..path.len() - 1].to_vec(),
                        "self" => path,
                        name => inside(&path, name),
                    });
                    tokens = after;
                }
                [TokenTree::Group(tree), after @ ..] if tree.delimiter() == Delimiter::Brace => {
                    let branches: Vec<TokenTree> = tree.stream().into_iter().collect();
                    let branches = branches.split(|token| is_mark(token, ','));
                    // The last one is empty after a trailing comma.
                    for branch in branches.filter(|branch| !branch.is_empty()) {
                        self.follow(path.clone(), branch);
                    }
                    return after;
                }
                _ => break,
            }
            if !is_separator(tokens) {
                break;
            }
            tokens = &tokens[2..];
        }
        self.record(path, tokens);
        tokens
    }

    /// Adds the file that a path names, and the name by which `after`, the tokens after it, make it known.
    fn record(&mut self, path: Option<Module>, after: &[TokenTree]) {
        let Some(path) = path else { return };
        self.named.insert(self.file_of(path.clone()));
        if self.files.contains_key(&path) {
            let name = match after {
                [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => {
                    Some(name.to_string())
                }
                _ => path.last().cloned(),
            };
            self.imported.extend(name.map(|name| (name, path)));
        }
    }

    /// Returns the file that defines what a path names: the longest part of the path that is a file.
    fn file_of(&self, mut path: Module) -> Module {
        while !self.files.contains_key(&path) {
            path.pop();
        }
        path
    }
}

fn inside(module: &Module, name: &str) -> Module {
    [module.as_slice(), &[name.to_owned()]].concat()
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [first, second, ..] if is_mark(first, ':') && is_mark(second, ':'))
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Returns the sets of files of which each leads to every other one.
fn cycles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<&Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|from| (from, reached(from, arrows))).collect();
    let mut cycles: Vec<BTreeSet<&Module>> = Vec::new();
    for from in arrows.keys() {
        let cycle: BTreeSet<&Module> =
            reached[from].iter().copied().filter(|to| reached[to].contains(from)).collect();
        if !cycle.is_empty() && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reached<'a>(from: &Module, arrows: &'a BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = arrows[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&arrows[module]);
        }
    }
    reached
}
