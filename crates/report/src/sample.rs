//! The reports that the golden tests render: one with every kind of block and cell, one made of the worst
//! strings that file and process names can bring in.

use assay_quantity::{Estimate, Interval, Method, Unit};

use crate::{
    Axis, Bar, Bars, Block, Cell, Column, Course, Curve, CurvePoint, Figure, Height, Length, Line, Part,
    Report, Scatter, Series, Stack, Table,
};

/// Words that stand in the blocks of [`report`], one per kind.
pub const LANDMARKS: [&str; 8] = [
    "A machine measured",
    "What it costs",
    "Primitives were timed",
    "predicted",
    "Load latency",
    "What the processor did",
    "What the law did",
    "What it achieved",
];

pub fn estimate(point: f64, low: f64, high: f64, unit: Unit) -> Estimate {
    let interval = Interval { low, high, confidence: 0.95 };
    Estimate { point, interval, unit, method: Method::TrimmedMean, values: 12 }
}

fn ns(point: f64, half: f64) -> Estimate {
    estimate(point, point - half, point + half, Unit::Nanoseconds)
}

/// Every kind of cell but one, in a column of its own scale each.
pub fn table() -> Table {
    let row = |name: &str, cost: Cell, floor: Cell, samples: Cell, stolen: Cell| {
        [Cell::text(name), cost, floor, samples, stolen]
    };
    let floor = |value: f64| Cell::Number { value, unit: Unit::Nanoseconds };
    Table::of(
        "OS primitives",
        [
            Column::words("primitive"),
            Column::numbers("cost"),
            Column::numbers("floor"),
            Column::numbers("samples"),
            Column::numbers("stolen"),
        ],
        [
            row("process.getpid", ns(48.2, 0.31).into(), floor(47.6), Cell::Count(12), Cell::Share(0.0)),
            row(
                "tcp.transfer{size=4KiB,buffer=reused}",
                estimate(1_248.765_432_1, 1236.25, 1261.28, Unit::Nanoseconds).into(),
                floor(1221.0),
                Cell::Count(12),
                Cell::Share(0.004),
            ),
            row(
                "process.fork_exec{link=dynamic}",
                estimate(812_400.0, 801_000.0, 871_000.0, Unit::Nanoseconds).into(),
                floor(790_100.0),
                Cell::Count(1_200),
                Cell::Share(0.314),
            ),
            row(
                "file.cold_read{size=1MiB}",
                Cell::Missing("needs root to drop the page cache".to_owned()),
                Cell::Missing("needs root to drop the page cache".to_owned()),
                Cell::Count(0),
                Cell::Missing("no timed part".to_owned()),
            ),
        ],
    )
    .with_note("One fresh process per sample; the processor's frequency was not fixed.")
}

fn transfers() -> Table {
    let row = |size: f64, more: i64, rate: f64, cost: f64| {
        [
            Cell::Number { value: size, unit: Unit::Bytes },
            Cell::Difference(more),
            Cell::Quantity(estimate(rate, rate * 0.97, rate * 1.03, Unit::PerSecond)),
            Cell::Quantity(estimate(cost, cost * 0.98, cost * 1.02, Unit::NanosecondsPerByte)),
        ]
    };
    Table::of(
        "Transfers",
        [
            Column::numbers("size"),
            Column::numbers("more"),
            Column::numbers_in("rate", Unit::PerSecond),
            Column::numbers_in("cost", Unit::NanosecondsPerByte),
        ],
        [
            row(64.0, 1_230, 231_000.0, 67.6),
            row(4096.0, 0, 121_400.0, 2.01),
            row(65_536.0, -1_234_567, 23_100.0, 0.66),
        ],
    )
}

fn facts() -> Table {
    let rows =
        [("cpu", "one"), ("page", "4 KiB"), ("noise", "processor 0: none"), ("noise", "processor 1: none")];
    let rows = rows.map(|(name, value)| [name, value].map(Cell::text));
    Table::of("What it is", ["fact", "value"].map(Column::words), rows).with_last_folded(3, "Other facts")
}

fn prediction() -> Figure {
    let part = |label: &str, point: f64, half: f64| Part {
        label: label.to_owned(),
        length: Length::Estimate(ns(point, half)),
    };
    let parts = vec![
        part("tcp.transfer{size=4KiB,buffer=reused}", 412_000.0, 9_000.0),
        part("file.read{size=16KiB}", 203_000.0, 4_100.0),
        part("process.context_switch{processes=2,cpus=same}", 96_000.0, 7_700.0),
        Part { label: "user time".to_owned(), length: Length::Number(331_000.0) },
    ];
    let bar = |label: &str, length: Estimate, parts: Vec<Part>| Bar {
        label: label.to_owned(),
        length: Length::Estimate(length),
        parts,
    };
    let bars = vec![
        bar("predicted", ns(1_042_000.0, 13_000.0), parts),
        bar("measured", estimate(1_118_000.0, 1_081_000.0, 1_190_000.0, Unit::Nanoseconds), Vec::new()),
    ];
    Figure::Bars(Bars::new("One request of nginx, predicted and measured", Unit::Nanoseconds, bars).unwrap())
}

fn latency() -> Figure {
    let line = |name: &str, factor: f64| Line {
        name: name.to_owned(),
        points: [
            (4096.0, 1.21),
            (32_768.0, 1.24),
            (262_144.0, 4.1),
            (2_097_152.0, 14.9),
            (33_554_432.0, 71.0),
            (268_435_456.0, 92.5),
        ]
        .map(|(x, y)| CurvePoint { x, y: ns(y * factor, y * factor * 0.06) })
        .to_vec(),
    };
    let axis = |label: &str, unit| Axis { label: label.to_owned(), unit };
    let lines = vec![line("this machine", 1.0), line("reference", 1.6)];
    let (x, y) = (axis("working set", Unit::Bytes), axis("load latency", Unit::Nanoseconds));
    Figure::Curve(Curve::new("Load latency over working set", x, y, lines).unwrap())
}

fn profile() -> Figure {
    let layer = |name: &str, amounts: &[f64]| Series {
        name: name.to_owned(),
        values: amounts.iter().copied().map(Some).collect(),
    };
    let layers = vec![
        layer("user", &[1.0, 8.0, 5.0, 0.0, 0.0, 2.0]),
        layer("kernel", &[9.0, 2.0, 3.0, 0.0, 0.25, 1.0]),
        layer("idle", &[0.0, 0.0, 2.0, 0.0, 9.75, 0.0]),
    ];
    let time = Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
    Figure::Stack(
        Stack::new("What the processor did", time, vec![0.0, 2e6, 4e6, 6e6, 8e6, 10e6, 10.5e6], layers)
            .unwrap(),
    )
}

fn limits() -> Figure {
    let line = |name: &str, values: &[f64]| Series {
        name: name.to_owned(),
        values: values.iter().copied().map(Some).collect(),
    };
    let lines =
        vec![line("knee", &[1024.0, 256.0, 64.0, 16.0, 8.0, 4.0]), line("the first limit", &[1024.0; 6])];
    let edges = (0..=6).map(|second| f64::from(second) * 1e9).collect();
    let axis = |label: &str, unit| Axis { label: label.to_owned(), unit };
    let (x, y) = (axis("time", Unit::Nanoseconds), axis("limit", Unit::Count));
    Figure::Course(Course::new("What the law did", x, edges, y, Height::Logarithmic, lines).unwrap())
}

fn collapse() -> Figure {
    let axis = |label: &str, unit| Axis { label: label.to_owned(), unit };
    let (x, y) = (axis("processor time of a commit", Unit::Nanoseconds), axis("commits", Unit::PerSecond));
    let points =
        vec![(45e3, 19_765.0), (70e3, 22_971.0), (109e3, 15_359.0), (252e3, 6_793.0), (970e3, 1_798.0)];
    Figure::Scatter(Scatter::new("What it achieved", x, y, points).unwrap())
}

/// Every kind of block, every kind of cell.
pub fn report() -> Report {
    let blocks = vec![
        Block::Text(
            "Primitives were timed in fresh processes, one after another in random order. A cost is the \
             trimmed mean over processes, and its interval says how well these processes agree.\n\nWhat \
             could not be measured is listed with its reason; nothing is left out."
                .to_owned(),
        ),
        Block::Heading("What it costs".to_owned()),
        Block::Table(table()),
        Block::Table(transfers()),
        Block::Table(facts()),
        Block::Heading("What an application would see".to_owned()),
        Block::Figure(prediction()),
        Block::Heading("Memory".to_owned()),
        Block::Figure(latency()),
        Block::Figure(profile()),
        Block::Figure(limits()),
        Block::Figure(collapse()),
    ];
    Report { title: "A machine measured: build-7".to_owned(), blocks }
}

/// A report that CSV can hold.
pub fn one_table() -> Report {
    Report { title: "Costs".to_owned(), blocks: vec![Block::Table(table())] }
}

/// Closes tags and quotes, opens elements, moves the cursor, reverses the text, and is wide.
pub const HOSTILE: &str = "</td></script><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' &amp; \u{1b}[2J\r\n\u{202e}尺寸\0";

/// The worst string in every place that takes one.
pub fn hostile() -> Report {
    let bad = || HOSTILE.to_owned();
    let table = Table::of(
        HOSTILE,
        [Column::words(HOSTILE), Column::numbers(HOSTILE)],
        [[Cell::Text(bad()), Cell::Missing(bad())]],
    )
    .with_note(HOSTILE);
    let part = Part { label: bad(), length: Length::Number(1.0) };
    let bar = Bar { label: bad(), length: Length::Estimate(ns(1.0, 0.1)), parts: vec![part] };
    let axis = || Axis { label: bad(), unit: Unit::Nanoseconds };
    let one = || vec![Series { name: bad(), values: vec![Some(1.0)] }];
    let line = Line { name: bad(), points: vec![CurvePoint { x: 1.0, y: ns(1.0, 0.1) }] };
    let blocks = vec![
        Block::Heading(bad()),
        Block::Heading(bad()),
        Block::Text(bad()),
        Block::Table(table),
        Block::Figure(Figure::Bars(Bars::new(HOSTILE, Unit::Nanoseconds, vec![bar]).unwrap())),
        Block::Figure(Figure::Curve(Curve::new(HOSTILE, axis(), axis(), vec![line]).unwrap())),
        Block::Figure(Figure::Stack(Stack::new(HOSTILE, axis(), vec![0.0, 1.0], one()).unwrap())),
        Block::Figure(Figure::Scatter(Scatter::new(HOSTILE, axis(), axis(), vec![(1.0, 0.0)]).unwrap())),
        Block::Figure(Figure::Course(
            Course::new(HOSTILE, axis(), vec![0.0, 1.0], axis(), Height::Linear, one()).unwrap(),
        )),
    ];
    Report { title: bad(), blocks }
}
