//! The floors of `bench`: which of its files may use which.
//!
//! An arrow leads from a file to a file that it names in a path: in a `use` item, in code, in a macro or in a
//! test. Comments and declarations of modules are no arrows.

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

/// Maximum number of files of which each leads to every other one.
const CYCLE_MAX: usize = 4;

/// A module: its path from the root of its crate.
type Module = Vec<String>;

#[test]
fn every_file_of_bench_uses_its_own_floor_and_those_below_only() {
    let arrows = arrows(&root().join("crates/bench/src"));
    let upward = |(from, to): &(&Module, &Module)| floor(from) < floor(to);
    let all = arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let upward: Vec<String> =
        all.filter(upward).map(|(from, to)| format!("{} -> {}", from.join("::"), to.join("::"))).collect();
    assert!(upward.is_empty(), "move what is named into a lower floor: {upward:#?}");
}

#[test]
fn bench_has_no_long_cycle_of_files() {
    for cycle in cycles(&arrows(&root().join("crates/bench/src"))) {
        let names: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
        assert!(names.len() <= CYCLE_MAX, "each of these files leads to every other one: {names:#?}");
    }
}

#[test]
fn arrows_are_found_in_every_kind_of_path() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("low")).unwrap();
    write("lib.rs", "mod low; mod a; mod b; mod c; mod d; pub use a::A;");
    write("low/mod.rs", "mod deep; pub use deep::Deep;");
    write("low/deep.rs", "pub struct Deep; // crate::a");
    write("a.rs", "use crate::low::{Deep, deep::{self as under}}; pub struct A;");
    write("b.rs", "fn b() { let text = \"crate::c\"; println!(\"{}{text}\", super::d::d()) }");
    write("c.rs", "mod tests { use super::*; fn c() { super::super::b::b::<u8>() } }");
    write("d.rs", "pub(crate) fn d() -> crate::A { std::iter::once(1).map(crate::c::c) }");
    let arrows = arrows(folder.path());
    let found: Vec<String> = arrows
        .iter()
        .map(|(from, all)| {
            let all: Vec<String> = all.iter().map(|to| to.join("::")).collect();
            format!("{}: {}", from.join("::"), all.join(" "))
        })
        .collect();
    assert_eq!(
        found,
        [": a", "a: low low::deep", "b: d", "c: b", "d:  c", "low: low::deep", "low::deep: "],
        "the root has no name"
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
        assert!(module.is_empty(), "{path} belongs to no floor");
        FLOORS.len()
    })
}

/// Returns the files that each file names, for the files below a folder.
fn arrows(folder: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let files: BTreeMap<Module, PathBuf> =
        sources(folder).into_iter().map(|file| (module(file.strip_prefix(folder).unwrap()), file)).collect();
    let all = files.iter().map(|(module, file)| {
        let tokens: TokenStream = fs::read_to_string(file).unwrap().parse().unwrap();
        let mut paths = Vec::new();
        find_paths(tokens, module, &files, &mut paths);
        let mut named: BTreeSet<Module> = paths.into_iter().map(|path| file_of(path, &files)).collect();
        named.remove(module);
        (module.clone(), named)
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

/// Returns the file that defines what a path names: the longest part of the path that is a file.
fn file_of(mut path: Module, files: &BTreeMap<Module, PathBuf>) -> Module {
    while !files.contains_key(&path) {
        path.pop();
    }
    path
}

/// Collects the paths from the root of the crate that these tokens of a module contain.
fn find_paths(
    tokens: TokenStream,
    module: &Module,
    files: &BTreeMap<Module, PathBuf>,
    paths: &mut Vec<Module>,
) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = &tokens[..];
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (TokenTree::Ident(word), [TokenTree::Ident(name), TokenTree::Group(body), ..])
                if word == "mod" =>
            {
                let inner = [module.as_slice(), &[name.to_string()]].concat();
                find_paths(body.stream(), &inner, files, paths);
                rest = &after[2..];
            }
            (TokenTree::Ident(word), _) if is_separator(after) => {
                let child = [module.as_slice(), &[word.to_string()]].concat();
                let base = match word.to_string().as_str() {
                    "crate" => Some(Vec::new()),
                    "self" => Some(module.clone()),
                    "super" => Some(module[..module.len() - 1].to_vec()),
                    _ => files.contains_key(&child).then_some(child),
                };
                // A path to another crate is skipped whole: its second word does not begin a path.
                rest = follow(base, &after[2..], paths);
            }
            (TokenTree::Group(group), _) => find_paths(group.stream(), module, files, paths),
            _ => {}
        }
    }
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    let colon =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    colon(tokens.first()) && colon(tokens.get(1))
}

/// Collects the paths that continue `base`, and returns the tokens after them.
fn follow<'a>(base: Option<Module>, mut tokens: &'a [TokenTree], paths: &mut Vec<Module>) -> &'a [TokenTree] {
    let mut path = base;
    loop {
        match tokens {
            [TokenTree::Ident(word), after @ ..] => {
                path = path.map(|mut path| {
                    match word.to_string().as_str() {
                        "super" => drop(path.pop()),
                        "self" => {}
                        name => path.push(name.to_owned()),
                    }
                    path
                });
                tokens = after;
            }
            [TokenTree::Group(tree), after @ ..] if tree.delimiter() == Delimiter::Brace => {
                let branches: Vec<TokenTree> = tree.stream().into_iter().collect();
                let comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
                for branch in branches.split(comma).filter(|branch| !branch.is_empty()) {
                    follow(path.clone(), branch, paths);
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
    paths.extend(path);
    tokens
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
