//! A report as one HTML file: to be sent, printed, and opened anywhere without a network.
//!
//! The page contains its style sheet and its figures as SVG, and no script. Its content security policy
//! forbids everything else, so that even a mistake in this module cannot load or execute anything. `maud`
//! escapes all text where it is inserted.

mod axis;
mod bars;
mod course;
mod curve;
mod scatter;
mod stack;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::figure::Figure;
use crate::layout::{self, Laid, interval_note};
use crate::scale::Symbols;
use crate::table::{Alignment, Table};
use crate::visible::visible;
use crate::{Block, Report};

const STYLE_SHEET: &str = include_str!("html/style.css");

/// Minimum number of sections of a page with a table of contents.
const CONTENTS: usize = 2;

/// The whole page.
#[must_use]
pub fn report(report: &Report) -> String {
    let sections = sections(report);
    let is_listed = sections.iter().filter(|section| section.heading.is_some()).count() >= CONTENTS;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (visible(&report.title)) }
                style { (PreEscaped(STYLE_SHEET)) }
            }
            body class=[is_listed.then_some("listed")] {
                header { h1 { (visible(&report.title)) } }
                @if is_listed { (contents(&sections)) }
                main { @for section in &sections { (self::section(section)) } }
            }
        }
    }
    .into_string()
        + "\n"
}

/// A heading with the blocks under it. Only the first section may have none.
struct Section<'a> {
    number: usize,
    heading: Option<&'a str>,
    blocks: Vec<&'a Block>,
}

fn sections(report: &Report) -> Vec<Section<'_>> {
    let mut sections = vec![Section { number: 0, heading: None, blocks: Vec::new() }];
    for block in &report.blocks {
        if let Block::Heading(heading) = block {
            let number = sections.len();
            sections.push(Section { number, heading: Some(heading), blocks: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.blocks.push(block);
        }
    }
    sections.retain(|section| section.heading.is_some() || !section.blocks.is_empty());
    sections
}

fn contents(sections: &[Section<'_>]) -> Markup {
    html! {
        nav aria-label="Contents" {
            ol {
                @for section in sections {
                    @if let Some(heading) = section.heading {
                        li { a href={ "#section-" (section.number) } { (visible(heading)) } }
                    }
                }
            }
        }
    }
}

fn section(section: &Section<'_>) -> Markup {
    let id = format!("section-{}", section.number);
    html! {
        section aria-labelledby=[section.heading.map(|_| &id)] {
            @if let Some(heading) = section.heading { h2 id=(id) { (visible(heading)) } }
            @for (position, block) in section.blocks.iter().enumerate() {
                (self::block(block, &format!("figure-{}-{position}", section.number)))
            }
        }
    }
}

/// `id` identifies the block; the label of a figure is referred to by it.
fn block(block: &Block, id: &str) -> Markup {
    match block {
        Block::Heading(_) => html! {},
        Block::Text(text) => html! {
            @for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
                p { (visible(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "))) }
            }
        },
        Block::Table(table) => self::table(table),
        Block::Figure(Figure::Bars(bars)) => bars::figure(bars, id),
        Block::Figure(Figure::Curve(curve)) => curve::figure(curve, id),
        Block::Figure(Figure::Stack(stack)) => stack::figure(stack, id),
        Block::Figure(Figure::Course(course)) => course::figure(course, id),
        Block::Figure(Figure::Scatter(scatter)) => scatter::figure(scatter, id),
    }
}

fn table(table: &Table) -> Markup {
    let (table, folded) = &table.without_empty_columns().parts();
    html! {
        div class="table" {
            (grid(table, html! { caption { (visible(table.title())) } }))
            @if let Some(folded) = folded {
                details { summary { (visible(folded.title())) } (grid(folded, html! {})) (notes(folded)) }
            }
            (notes(table))
        }
    }
}

/// The rows and columns. A table that is wider than the screen scrolls by itself, so that the page never
/// does.
fn grid(table: &Table, caption: Markup) -> Markup {
    let columns: Vec<Vec<Laid>> =
        (0..table.columns().len()).map(|c| layout::column(table, c, Symbols::Unicode)).collect();
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(visible(table.title())) {
            table {
                (caption)
                thead {
                    tr {
                        @for (position, column) in table.columns().iter().enumerate() {
                            th scope="col" class=(side(column.alignment)) { (layout::header(table, position)) }
                        }
                    }
                }
                tbody {
                    @for row in 0..table.rows().len() {
                        tr {
                            @for (position, column) in columns.iter().enumerate() {
                                (cell(&column[row], position, table.columns()[position].alignment))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The first cell of a row, if it is words, names the row.
fn cell(laid: &Laid, position: usize, alignment: Alignment) -> Markup {
    let side = side(alignment);
    match laid {
        Laid::Text(text) if position == 0 => html! { th scope="row" class=(side) { (breakable(text)) } },
        Laid::Text(text) => html! { td class=(side) { (breakable(text)) } },
        Laid::Missing(reason) => html! {
            td class={ (side) " missing" } { "missing" sup { "(" (reason) ")" } }
        },
        Laid::Number(pieces) => html! {
            td class={ (side) " number" } {
                (pieces.point) span class="spread" { (pieces.spread) } span class="unit" { (pieces.unit) }
            }
        },
    }
}

/// Text with places where a long primitive id or path may be broken.
fn breakable(text: &str) -> Markup {
    html! {
        @for piece in text.split_inclusive([',', '{', '/']) { (piece) wbr; }
    }
}

fn side(alignment: Alignment) -> &'static str {
    alignment.name()
}

fn notes(table: &Table) -> Markup {
    let reasons = table.reasons();
    let interval = interval_note(table.estimates(), Symbols::Unicode);
    html! {
        @if !(reasons.is_empty() && interval.is_none() && table.notes().is_empty()) {
            ul class="notes" {
                @for (position, reason) in reasons.iter().enumerate() {
                    li { "(" (position + 1) ") " (visible(reason)) }
                }
                @if let Some(interval) = interval { li { (interval) } }
                @for note in table.notes() { li { (visible(note)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests;
