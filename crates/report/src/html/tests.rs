//! What a page contains, and what it must not contain.

use super::*;
use crate::sample;
use expect_test::expect_file;

#[test]
fn the_sample_report_as_html() {
    expect_file!["../golden/report.html"].assert_eq(&report(&sample::report()));
}

#[test]
fn the_page_refers_to_nothing_outside_itself() {
    let page = report(&sample::report());
    for outside in ["http://", "https://", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let targets: Vec<&str> =
        page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(targets.len(), 3);
    for target in targets {
        let id = target.strip_prefix('#').expect("a fragment");
        assert!(page.contains(&format!("id=\"{id}\"")), "{target} leads nowhere");
    }
}

#[test]
fn hostile_text_stays_text() {
    let page = report(&sample::hostile());
    for element in ["<script", "<img", "</script"] {
        assert!(!page.contains(element), "{element}");
    }
    // Inside of tags, outside of quotes, no handler has come in.
    let mut is_quoted = false;
    let tags: String = page
        .split('<')
        .filter_map(|rest| rest.split_once('>'))
        .flat_map(|(tag, _)| tag.chars())
        .filter(|c| {
            is_quoted ^= *c == '"';
            !is_quoted
        })
        .collect();
    assert!(!tags.contains("onload") && !tags.contains("onerror") && !is_quoted);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn every_element_that_is_opened_is_closed() {
    const VOID: [&str; 2] = ["meta", "wbr"];
    for page in [report(&sample::report()), report(&sample::hostile())] {
        let mut open: Vec<&str> = Vec::new();
        for tag in page.split('<').skip(2).filter_map(|rest| rest.split('>').next()) {
            let name = tag.trim_start_matches('/').split(' ').next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !VOID.contains(&name) {
                open.push(name);
            }
        }
        assert_eq!(open, [""; 0]);
    }
}

#[test]
fn ids_are_unique_and_every_reference_to_one_resolves() {
    let page = report(&sample::hostile());
    let values = |attribute: &str| -> Vec<String> {
        let opening = format!(" {attribute}=\"");
        page.split(&opening).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
    };
    let ids = values("id");
    for id in &ids {
        assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{id}");
    }
    for reference in values("aria-labelledby").iter().flat_map(|ids| ids.split(' ')) {
        assert!(ids.iter().any(|id| id == reference), "{reference}");
    }
}

#[test]
fn columns_and_rows_of_tables_say_what_they_head() {
    let page = report(&sample::one_table());
    assert_eq!(page.matches("<th scope=\"col\"").count(), 5);
    assert_eq!(page.matches("<th scope=\"row\"").count(), 4);
    assert_eq!(page.matches("<th").count(), 10, "a <th> without scope, or <thead> has moved");
    assert!(page.contains("<caption>"));
}

#[test]
fn a_report_without_blocks_is_still_a_page() {
    let page = report(&Report { title: "Nothing".to_owned(), blocks: Vec::new() });
    assert!(page.contains("<h1>Nothing</h1>") && !page.contains("<nav"));
}
