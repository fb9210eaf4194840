//! How runs begin, and what disturbs them.

/// How a run begins, and what disturbs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is, one sentence.
    pub about: &'static str,
    /// The first limit.
    pub start: Start,
    /// Standard deviation of the logarithm of the capacity, drawn anew for each tenth of a second.
    pub noise: f64,
    /// Periods of the law by which a signal is late.
    pub delay: usize,
    /// Factor of the law's steps.
    pub gain: f64,
}

/// The first limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// One unit.
    Below,
    /// All clients: inside the collapse, if there is one.
    Inside,
    /// One unit, and 8 clients for the time of a phase, before the plant's clients come in one step.
    Surge,
}

const CALM: Scenario = Scenario {
    name: "below",
    about: "from a limit of 1",
    start: Start::Below,
    noise: 0.0,
    delay: 1,
    gain: 1.0,
};

/// Every scenario.
pub static SCENARIOS: [Scenario; 7] = [
    CALM,
    Scenario { name: "inside", about: "from a limit of all clients", start: Start::Inside, ..CALM },
    Scenario {
        name: "surge",
        about: "8 clients for the time of a phase, then all in one step",
        start: Start::Surge,
        ..CALM
    },
    Scenario { name: "noise", about: "from a limit of 1, with noise of 20 %", noise: 0.2, ..CALM },
    Scenario {
        name: "noise-inside",
        about: "from a limit of all clients, with noise of 20 %",
        start: Start::Inside,
        noise: 0.2,
        ..CALM
    },
    Scenario {
        name: "gain",
        about: "from a limit of all clients, with steps of twice the size",
        start: Start::Inside,
        gain: 2.0,
        ..CALM
    },
    Scenario {
        name: "delay",
        about: "from a limit of all clients, with signals that are two periods late in the place of one",
        start: Start::Inside,
        delay: 2,
        ..CALM
    },
];

impl Scenario {
    /// Finds a scenario by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }
}
