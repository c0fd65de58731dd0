//! The commands of cells.

/// A cell's command (tor-spec, "Cell packet format").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Command(pub u8);

impl Command {
    pub const PADDING: Command = Command(0);
    pub const CREATE: Command = Command(1);
    pub const CREATED: Command = Command(2);
    pub const RELAY: Command = Command(3);
    pub const DESTROY: Command = Command(4);
    pub const CREATE_FAST: Command = Command(5);
    pub const CREATED_FAST: Command = Command(6);
    pub const VERSIONS: Command = Command(7);
    pub const NETINFO: Command = Command(8);
    pub const RELAY_EARLY: Command = Command(9);
    pub const CREATE2: Command = Command(10);
    pub const CREATED2: Command = Command(11);
    pub const PADDING_NEGOTIATE: Command = Command(12);
    /// Heddle's own, in test networks: a cell of a circuit whose cells are datagrams (`docs/reference/forwarding.md`).
    /// Relays that do not know it drop it.
    pub const DATAGRAM: Command = Command(120);
    pub const VPADDING: Command = Command(128);
    pub const CERTS: Command = Command(129);
    pub const AUTH_CHALLENGE: Command = Command(130);
    pub const AUTHENTICATE: Command = Command(131);
    pub const AUTHORIZE: Command = Command(132);

    /// Whether cells of this command carry their length. Known from the command alone, so that
    /// unknown commands can be skipped.
    pub const fn is_variable(self) -> bool {
        self.0 == Self::VERSIONS.0 || self.0 >= 128
    }

    /// Whether cells of this command carry what a circuit's ends say to each other.
    pub const fn is_relay(self) -> bool {
        matches!(self, Self::RELAY | Self::RELAY_EARLY | Self::DATAGRAM)
    }

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::PADDING => "PADDING",
            Self::CREATE => "CREATE",
            Self::CREATED => "CREATED",
            Self::RELAY => "RELAY",
            Self::DESTROY => "DESTROY",
            Self::CREATE_FAST => "CREATE_FAST",
            Self::CREATED_FAST => "CREATED_FAST",
            Self::VERSIONS => "VERSIONS",
            Self::NETINFO => "NETINFO",
            Self::RELAY_EARLY => "RELAY_EARLY",
            Self::CREATE2 => "CREATE2",
            Self::CREATED2 => "CREATED2",
            Self::PADDING_NEGOTIATE => "PADDING_NEGOTIATE",
            Self::DATAGRAM => "DATAGRAM",
            Self::VPADDING => "VPADDING",
            Self::CERTS => "CERTS",
            Self::AUTH_CHALLENGE => "AUTH_CHALLENGE",
            Self::AUTHENTICATE => "AUTHENTICATE",
            Self::AUTHORIZE => "AUTHORIZE",
            _ => return None,
        })
    }
}

impl core::fmt::Debug for Command {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "command {}", self.0),
        }
    }
}

impl core::fmt::Display for Command {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}
