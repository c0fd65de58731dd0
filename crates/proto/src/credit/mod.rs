//! Credit from hop to hop: how many cells of a circuit a relay may send to the next one (DefenestraTor: AlSabah and
//! others, PETS 2011, section 4.2; N23 is Kung's and Morris' scheme for ATM).
//!
//! 1. Both sides of a hop agree on a [`HopCredit`] before the circuit's first cell.
//! 2. The side that sends has a balance: N2 + N3 cells at first, one less with each cell, and none is sent at
//!    zero.
//! 3. The side that receives keeps accounts: after every N2 cells that it passed on it tells up to which cell of
//!    the circuit the other may send ([`CreditMessage::Granted`]). So a circuit's queue there never holds more than
//!    N2 + N3.
//! 4. What is told counts from the circuit's beginning. So a message that is lost, late or doubled changes nothing but
//!    when the next cell leaves; and a side that is kept at zero for long asks ([`CreditMessage::Asked`]).
//! 5. With [`N3::Adaptive`] the receiving side lowers N3 while cells wait long for its own next hop.
//!
//! A [`Ledger`] has both, as one side keeps them. This is policy: numbers and times, never a cell. Channels between
//! relays carry it as [`CreditCell`], and a relay's lanes to its own shards have it without.

mod accounts;
mod adaptive;
mod balance;
mod cell;
mod choice;
mod ledger;

use accounts::Accounts;
use balance::Balance;
pub use cell::CreditCell;
pub use ledger::Ledger;

use crate::cell::Malformed;
use core::fmt;

/// What two neighbours agree on for the circuits between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopCredit {
    /// Whatever comes is taken: windows of the circuit's ends and the pool are the bounds.
    #[default]
    None,
    N23(N23),
}

/// The parameters of N23.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct N23 {
    /// N2: after so many cells passed on, credit is told. At least 1; the paper has 10 and 20.
    pub n2_cells: u16,
    /// The room beyond it.
    pub n3: N3,
}

/// N3: the buffering beyond what the steady state needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum N3 {
    /// Always so many cells; the paper has 70, 100 and 500.
    Static(u16),
    /// From 100 to 500 cells, by how long cells wait for the next hop.
    Adaptive,
}

impl N3 {
    /// What it is at first, and at most.
    const fn most_cells(self) -> u16 {
        match self {
            N3::Static(cells) => cells,
            N3::Adaptive => adaptive::MOST_CELLS,
        }
    }
}

impl N23 {
    /// The most that a circuit's queue may ever hold: N2 + N3.
    pub const fn queue_cells_max(self) -> u32 {
        self.period_cells() + self.n3.most_cells() as u32
    }

    /// N2, which zero would make meaningless.
    const fn period_cells(self) -> u32 {
        if self.n2_cells == 0 { 1 } else { self.n2_cells as u32 }
    }
}

/// What the sides of a hop tell each other about one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditMessage {
    /// You may send so many cells, counted from the circuit's first.
    Granted { cells: u64 },
    /// Say again how many.
    Asked,
}

impl CreditMessage {
    /// Bytes of a message.
    pub const LEN: usize = 9;
    const GRANTED: u8 = 1;
    const ASKED: u8 = 2;

    pub fn encode(self) -> [u8; Self::LEN] {
        let (kind, cells) = match self {
            CreditMessage::Granted { cells } => (Self::GRANTED, cells),
            CreditMessage::Asked => (Self::ASKED, 0),
        };
        let mut bytes = [kind; Self::LEN];
        bytes[1..].copy_from_slice(&cells.to_be_bytes());
        bytes
    }

    /// Reads a message; what follows it is padding.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (bytes, _) = bytes.split_first_chunk::<{ Self::LEN }>().ok_or(Malformed::Truncated)?;
        let [kind, cells @ ..] = *bytes;
        match kind {
            Self::GRANTED => Ok(CreditMessage::Granted { cells: u64::from_be_bytes(cells) }),
            Self::ASKED => Ok(CreditMessage::Asked),
            _ => Err(Malformed::Invalid("a message about credit that we don't know")),
        }
    }
}

/// What a neighbour did against the agreement. The circuit ends; nobody else's does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditViolation {
    /// It sent a cell that it had no credit for.
    Overrun,
    /// It granted more than its queue may hold.
    Boundless,
}

impl CreditViolation {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            CreditViolation::Overrun => "a cell beyond the hop's credit",
            CreditViolation::Boundless => "credit beyond what the hop agreed on",
        }
    }
}

impl fmt::Display for CreditViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for CreditViolation {}
