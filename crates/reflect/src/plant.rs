//! Plants: servers as the laws see them, fitted to collapses that were measured with real databases.
//!
//! A plant says how many units a server finishes in a second when some are in flight, and what they wait for;
//! [`server`] advances one in steps. The figures are of PostgreSQL 15.20 and MariaDB 10.11.19 on two
//! processors under sysbench 1.0.20; the plants without a figure of their own say so in `about`.

pub(crate) mod server;

/// A server, and the clients that overload it.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    /// Its name.
    pub name: &'static str,
    /// What it is, one sentence.
    pub about: &'static str,
    /// Clients in overload; each always has a unit in flight or waiting.
    pub clients: u32,
    /// What the clients ask for, one after the other.
    pub phases: &'static [Phase],
}

/// What clients ask for during a phase.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// How fast the server serves it.
    pub capacity: Capacity,
    /// Share of the processors that the server has, of those it was measured with.
    pub processors: f64,
}

/// Units per second that a server finishes, as a function of the number in flight.
#[derive(Debug, Clone, Copy)]
pub enum Capacity {
    /// The universal scalability law (Gunther 1993): `one x n / (1 + contention (n - 1) + coherency n (n -
    /// 1))`.
    Universal {
        /// Units per second with one in flight.
        one_per_s: f64,
        /// Share of a unit that is serial.
        contention: f64,
        /// Cost of a pair of units.
        coherency: f64,
    },
    /// Measured points of (in flight, units per second), with straight lines between their logarithms; the
    /// first one also holds below it in proportion, the last one also above it.
    Measured {
        /// The points, in rising order.
        points: &'static [(f64, f64)],
        /// The same of the units that fail; none if there are none.
        failures: &'static [(f64, f64)],
        /// What units wait for.
        wait: Wait,
    },
    /// A transaction may run into a deadlock, and then holds its place for `deadlock_timeout`, one second.
    Deadlock {
        /// Units per second with one in flight.
        one_per_s: f64,
        /// Number in flight at which every transaction runs into one.
        every: f64,
        /// Exponent of that probability over the number in flight.
        exponent: f64,
        /// Most transactions that leave a deadlock in a second.
        released_per_s: f64,
        /// Share of them that fail: the victims.
        victims: f64,
    },
}

/// What the units that do not run wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A processor.
    Processor,
    /// A lock of the server, with one processor in use.
    Lock,
}

/// Processors of the machine that the figures are of.
pub(crate) const PROCESSORS: f64 = 2.0;

/// Autocommitted updates of one row, PostgreSQL: 19,765 a second alone, most at 4, 2.5 % of that at 1,024.
const HOT_ROW: Phase = whole(Capacity::Universal { one_per_s: 19_765.0, contention: 0.74, coherency: 0.040 });

/// TPC-B at scale 1, PostgreSQL.
const TPC_B: Capacity = Capacity::Universal { one_per_s: 3_980.0, contention: 0.78, coherency: 0.014 };

/// The shopping mix, PostgreSQL: a plateau from 4 to 64, and a cliff.
const SHOPPING: Phase = whole(Capacity::Measured {
    points: &[
        (1.0, 1_147.0),
        (4.0, 2_339.0),
        (16.0, 2_286.0),
        (32.0, 2_246.0),
        (64.0, 2_171.0),
        (128.0, 954.0),
        (1_024.0, 286.0),
    ],
    failures: &[],
    wait: Wait::Processor,
});

/// Selects of one row, PostgreSQL: as many with 1,024 in flight as with 2. Measured with 4 only.
const SELECT: Phase = whole(Capacity::Measured {
    points: &[(1.0, 18_000.0), (2.0, 34_500.0), (1_024.0, 34_500.0)],
    failures: &[],
    wait: Wait::Processor,
});

const fn whole(capacity: Capacity) -> Phase {
    Phase { capacity, processors: 1.0 }
}

/// Every plant.
pub static PLANTS: [Plant; 9] = [
    Plant {
        name: "universal",
        about: "Updates of one row, PostgreSQL: the universal scalability law, with its peak at 2.6.",
        clients: 1_024,
        phases: &[HOT_ROW],
    },
    Plant {
        name: "step",
        about: "Updates of one row, MariaDB: a third is left from 16 on.",
        clients: 1_024,
        phases: &[whole(Capacity::Measured {
            points: &[
                (1.0, 29_334.0),
                (4.0, 29_012.0),
                (16.0, 10_316.0),
                (64.0, 6_832.0),
                (256.0, 6_211.0),
                (1_024.0, 5_260.0),
            ],
            failures: &[],
            wait: Wait::Lock,
        })],
    },
    Plant {
        name: "cliff",
        about: "Shopping mix, PostgreSQL: a plateau from 4 to 64, and a cliff.",
        clients: 1_024,
        phases: &[SHOPPING],
    },
    Plant {
        name: "deadlock",
        about: "Updates of 8 of 1,000 rows, PostgreSQL: a deadlock parks its transactions for a second.",
        clients: 128,
        phases: &[whole(Capacity::Deadlock {
            one_per_s: 475.0,
            every: 41.7,
            exponent: 2.69,
            released_per_s: 32.0,
            victims: 0.075,
        })],
    },
    Plant {
        name: "aborts",
        about: "Updates of 8 of 1,000 rows, MariaDB: aborts at once, a tenth is left at 256.",
        clients: 256,
        phases: &[whole(Capacity::Measured {
            points: &[(1.0, 2_600.0), (2.0, 5_067.0), (8.0, 4_774.0), (32.0, 1_679.0), (256.0, 512.0)],
            failures: &[(2.0, 0.1), (8.0, 10.0), (32.0, 34.0), (256.0, 663.0)],
            wait: Wait::Processor,
        })],
    },
    Plant {
        name: "far",
        about: "A machine with more processors: a peak at 70. Not measured.",
        clients: 1_024,
        phases: &[whole(Capacity::Universal { one_per_s: 2_000.0, contention: 0.02, coherency: 0.000_2 })],
    },
    Plant {
        name: "select",
        about: "Selects of one row, PostgreSQL: no collapse.",
        clients: 1_024,
        phases: &[SELECT],
    },
    Plant {
        name: "change",
        about: "The clients change from updates of one row to selects, the shopping mix, and back.",
        clients: 1_024,
        phases: &[HOT_ROW, SELECT, SHOPPING, HOT_ROW],
    },
    Plant {
        name: "taken",
        about: "TPC-B at scale 1, PostgreSQL; half of the processors are taken away and given back.",
        clients: 1_024,
        phases: &[whole(TPC_B), Phase { capacity: TPC_B, processors: 0.5 }, whole(TPC_B)],
    },
];

impl Plant {
    /// Finds a plant by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Plant> {
        PLANTS.iter().find(|plant| plant.name == name)
    }
}

impl Capacity {
    /// Returns the units that are served in a second when `running` are in flight and in no deadlock.
    pub(crate) fn served_per_s(&self, running: f64) -> f64 {
        if running <= 0.0 {
            return 0.0;
        }
        match *self {
            Capacity::Universal { one_per_s, contention, coherency } => {
                // Fewer than one in flight are one, for a part of the time.
                let others = (running - 1.0).max(0.0);
                one_per_s * running / (1.0 + contention * others + coherency * running * others)
            }
            Capacity::Measured { points, .. } => interpolated(points, running),
            Capacity::Deadlock { one_per_s, .. } => one_per_s * running.min(PROCESSORS),
        }
    }

    /// Returns the units that fail in a second when `running` are in flight, without the victims of
    /// deadlocks.
    pub(crate) fn failed_per_s(&self, running: f64) -> f64 {
        match *self {
            Capacity::Measured { failures, .. } if !failures.is_empty() => interpolated(failures, running),
            Capacity::Universal { .. } | Capacity::Measured { .. } | Capacity::Deadlock { .. } => 0.0,
        }
    }
}

/// The value at `x` on straight lines between the logarithms of points.
fn interpolated(points: &[(f64, f64)], x: f64) -> f64 {
    let (first, last) = (points[0], points[points.len() - 1]);
    if x <= first.0 {
        return first.1 * x / first.0;
    }
    let Some(pair) = points.windows(2).find(|pair| x <= pair[1].0) else { return last.1 };
    let share = (x / pair[0].0).ln() / (pair[1].0 / pair[0].0).ln();
    pair[0].1 * (pair[1].1 / pair[0].1).powf(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_plants_differ_and_are_found() {
        for plant in PLANTS {
            assert_eq!(Plant::named(plant.name).map(|found| found.about), Some(plant.about));
        }
        assert!(Plant::named("none").is_none());
    }

    #[test]
    fn measured_points_are_met_and_lines_join_them() {
        let points = [(1.0, 100.0), (4.0, 400.0), (16.0, 100.0)];
        for (x, expected) in
            [(0.5, 50.0), (1.0, 100.0), (2.0, 200.0), (8.0, 200.0), (16.0, 100.0), (99.0, 100.0)]
        {
            assert!((interpolated(&points, x) - expected).abs() < 1e-9, "{x}");
        }
    }

    /// In flight, and the units per second that were measured there: of the two plants that are formulas.
    #[test]
    fn formulas_are_near_what_was_measured() {
        let hot_row = HOT_ROW.capacity;
        for (in_flight, measured) in [
            (1.0, 19_765.0),
            (4.0, 22_971.0),
            (16.0, 15_359.0),
            (64.0, 6_793.0),
            (256.0, 1_798.0),
            (1_024.0, 570.0),
        ] {
            let ratio = hot_row.served_per_s(in_flight) / measured;
            assert!((0.8..1.2).contains(&ratio), "{in_flight}: {ratio}");
        }
        for (in_flight, measured) in
            [(4.0, 5_705.0), (16.0, 3_504.0), (64.0, 2_067.0), (256.0, 905.0), (1_024.0, 292.0)]
        {
            let ratio = TPC_B.served_per_s(in_flight) / measured;
            assert!((0.7..1.4).contains(&ratio), "{in_flight}: {ratio}");
        }
    }
}
