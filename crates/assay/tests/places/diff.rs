//! Two traces compared.

use crate::place::{Place, Said};

#[test]
fn a_call_that_only_one_trace_contains_is_new_or_gone() {
    let place = Place::new();
    let record = |name: &str, command: &str| {
        let said = Said::by(&mut place.assay(&["trace", "-o", name, "--", "sh", "-c", command]));
        assert!(said.status.success(), "{said:?}");
    };
    std::fs::create_dir(place.path("empty")).unwrap();
    record("a.trace", "rmdir empty || true");
    record("b.trace", "rmdir missing || true");
    let diff = |words: &[&str]| Said::by(&mut place.assay(&[&["diff"], words].concat()));
    let text = diff(&["a.trace", "b.trace"]).stdout;
    let change = |text: &str, name: &str| {
        let row = text.lines().find(|line| line.starts_with(&format!(" {name} "))).map(str::to_owned);
        row.unwrap_or_else(|| panic!("{name}: {text}")).split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(change(&text, "rmdir"), "gone", "{text}");
    assert_eq!(change(&text, "rmdir = ENOENT"), "new", "{text}");
    assert!(text.starts_with("b.trace compared with a.trace\n"), "{text}");
    let text = diff(&["b.trace", "a.trace", "--units", "2"]).stdout;
    assert_eq!(change(&text, "rmdir = ENOENT"), "gone", "{text}");
    assert!(text.contains("per unit of work") && text.contains("0.500"), "{text}");
    for (format, beginning) in [("json", "{"), ("csv", "\"Time that"), ("html", "<!DOCTYPE html>")] {
        let said = diff(&["a.trace", "--with", "b.trace", "--units", "1,2", "--format", format]);
        assert!(said.status.success() && said.stdout.starts_with(beginning), "{format}: {said:?}");
    }
    diff(&["a.trace"]).complains_of(&["give two traces, or those after the change with --with"]);
    diff(&["a.trace", "b.trace", "--units=1,2,3"]).complains_of(&["--units requires one number, or one for"]);
    diff(&["a.trace", "--with", "b.trace", "./b.trace"]).complains_of(&["./b.trace is given twice"]);
    diff(&["a.trace", "a.trace"]).complains_of(&["a.trace is given twice"]);
    diff(&["a.trace", "missing.trace"]).complains_of(&["missing.trace"]);
    let manifest = place.path("a.trace/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("x86_64", "aarch64")).unwrap();
    diff(&["a.trace", "b.trace"]).complains_of(&["a.trace: recorded on aarch64"]);
}
