//! What an application says of its units of work, in the spirit of madvise(2) (Fowler et al., section 2).
//! Gates act on the class and the queue, the start of a law depends on the bound, a placement on all three,
//! and observers show the name.

/// Advice on one kind of units of work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advice {
    /// What one unit is, in the singular, such as "request"; empty if it has no name.
    pub unit: String,
    /// How urgent it is.
    pub class: Class,
    /// What limits it.
    pub bound: Bound,
    /// Whether it may wait for admission.
    pub queue: Queue,
}

/// How urgent a unit of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// A user waits for it. A gate admits it before the others.
    #[default]
    Interactive,
    /// It is not urgent. A gate admits it when no interactive unit waits, which may be never. A placement may
    /// give it longer time slices.
    Batch,
}

/// What limits a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bound {
    /// Not known.
    #[default]
    Unknown,
    /// The bandwidth of the memory, so that a second unit adds little (section 3.1). A law begins with one; a
    /// placement expects two to compete.
    Bandwidth,
}

/// Whether a unit of work may wait for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queue {
    /// It may.
    #[default]
    Allowed,
    /// It may not, because others wait for it, or because it costs nearly nothing. A gate admits it at once;
    /// it takes no place of the limit, and is not in the signals of the law.
    Never,
}

impl Class {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}
