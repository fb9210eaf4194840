//! Two of a thing: a base, and what is compared with it.

use std::fmt;

/// The same thing of two machines, or of two states of one. `a` is the base: ratios are b/a.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair<T> {
    /// Of the base.
    pub a: T,
    /// Of what is compared with it.
    pub b: T,
}

/// One of a [`Pair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The base.
    A,
    /// What is compared with it.
    B,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Which::A => "A",
            Which::B => "B",
        })
    }
}

impl<T> Pair<T> {
    /// The value of one side.
    pub fn get(&self, which: Which) -> &T {
        match which {
            Which::A => &self.a,
            Which::B => &self.b,
        }
    }

    /// The value of one side, to be changed.
    pub fn get_mut(&mut self, which: Which) -> &mut T {
        match which {
            Which::A => &mut self.a,
            Which::B => &mut self.b,
        }
    }

    /// References to both sides.
    pub fn as_ref(&self) -> Pair<&T> {
        Pair { a: &self.a, b: &self.b }
    }

    /// Applies a function to both sides.
    pub fn map<U>(self, mut of: impl FnMut(T) -> U) -> Pair<U> {
        Pair { a: of(self.a), b: of(self.b) }
    }
}
