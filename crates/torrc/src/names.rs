//! The names of stock Tor's options: which exist, which are gone, and what else they may be called.

/// Every option that stock Tor 0.4.9 lists with `--list-torrc-options`.
#[rustfmt::skip]
const STOCK: &[&str] = &[
    "__AllDirActionsPrivate", "__AlwaysCongestionControl", "__ControlPort", "__DirPort",
    "__DisablePredictedCircuits", "__DisableSignalHandlers", "__DNSPort", "__ExtORPort",
    "__HashedControlSessionPassword", "__HTTPTunnelPort", "__LeaveStreamsUnattached",
    "__MetricsPort", "__NATDPort", "__ORPort", "__OwningControllerFD", "__OwningControllerProcess",
    "__ReloadTorrcOnSIGHUP", "__SbwsExit", "__SocksPort", "__TransPort", "AccelDir", "AccelName",
    "AccountingMax", "AccountingRule", "AccountingStart", "Address", "AddressDisableIPv6",
    "AllowNonRFC953Hostnames", "AlternateBridgeAuthority", "AlternateDirAuthority",
    "AssumeReachable", "AssumeReachableIPv6", "AuthDirBadExit", "AuthDirBadExitCCs",
    "AuthDirFastGuarantee", "AuthDirGuardBWGuarantee", "AuthDirHasIPv6Connectivity",
    "AuthDirInvalid", "AuthDirInvalidCCs", "AuthDirListBadExits", "AuthDirListMiddleOnly",
    "AuthDirMaxServersPerAddr", "AuthDirMiddleOnly", "AuthDirMiddleOnlyCCs", "AuthDirPinKeys",
    "AuthDirReject", "AuthDirRejectCCs", "AuthDirRejectRequestsUnderLoad",
    "AuthDirSharedRandomness", "AuthDirTestEd25519LinkKeys", "AuthDirTestReachability",
    "AuthDirVoteGuard", "AuthDirVoteGuardBwThresholdFraction",
    "AuthDirVoteGuardGuaranteeTimeKnown", "AuthDirVoteGuardGuaranteeWFU",
    "AuthDirVoteStableGuaranteeMinUptime", "AuthDirVoteStableGuaranteeMTBF",
    "AuthoritativeDirectory", "AutomapHostsOnResolve", "AutomapHostsSuffixes", "AvoidDiskWrites",
    "BandwidthBurst", "BandwidthRate", "Bridge", "BridgeAuthoritativeDir", "BridgeDistribution",
    "BridgePassword", "BridgeRecordUsageByCountry", "BridgeRelay", "CacheDirectory",
    "CacheDirectoryGroupReadable", "CellStatistics", "CircuitBuildTimeout", "CircuitPadding",
    "CircuitPriorityHalflife", "CircuitsAvailableTimeout", "CircuitStreamTimeout",
    "ClientBootstrapConsensusAuthorityDownloadInitialDelay",
    "ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay",
    "ClientBootstrapConsensusFallbackDownloadInitialDelay",
    "ClientBootstrapConsensusMaxInProgressTries", "ClientDNSRejectInternalAddresses",
    "ClientOnionAuthDir", "ClientOnly", "ClientPreferIPv6DirPort", "ClientPreferIPv6ORPort",
    "ClientRejectInternalAddresses", "ClientTransportPlugin", "ClientUseIPv4", "ClientUseIPv6",
    "CompiledProofOfWorkHash", "ConfluxClientUX", "ConfluxEnabled", "ConnDirectionStatistics",
    "ConnectionPadding", "ConnLimit", "ConsensusParams", "ConstrainedSockets",
    "ConstrainedSockSize", "ContactInfo", "ControlPort", "ControlPortFileGroupReadable",
    "ControlPortWriteToFile", "ControlSocket", "ControlSocketsGroupWritable",
    "CookieAuthentication", "CookieAuthFile", "CookieAuthFileGroupReadable",
    "CountPrivateBandwidth", "DataDirectory", "DataDirectoryGroupReadable",
    "DirAllowPrivateAddresses", "DirAuthority", "DirAuthorityFallbackRate", "DirCache",
    "DirPolicy", "DirPort", "DirPortFrontPage", "DirReqStatistics", "DisableAllSwap",
    "DisableDebuggerAttachment", "DisableNetwork", "DisableOOSCheck", "DNSPort",
    "DormantCanceledByStartup", "DormantClientTimeout", "DormantOnFirstStartup",
    "DormantTimeoutDisabledByIdleStreams", "DormantTimeoutEnabled", "DoSCircuitCreationBurst",
    "DoSCircuitCreationDefenseTimePeriod", "DoSCircuitCreationDefenseType",
    "DoSCircuitCreationEnabled", "DoSCircuitCreationMinConnections", "DoSCircuitCreationRate",
    "DoSConnectionConnectBurst", "DoSConnectionConnectDefenseTimePeriod",
    "DoSConnectionConnectRate", "DoSConnectionDefenseType", "DoSConnectionEnabled",
    "DoSConnectionMaxConcurrentCount", "DoSRefuseSingleHopClientRendezvous",
    "DoSStreamCreationBurst", "DoSStreamCreationDefenseType", "DoSStreamCreationEnabled",
    "DoSStreamCreationRate", "DownloadExtraInfo", "EnforceDistinctSubnets", "EntryNodes",
    "EntryStatistics", "ExcludeExitNodes", "ExcludeNodes", "ExitNodes", "ExitPolicy",
    "ExitPolicyRejectLocalInterfaces", "ExitPolicyRejectPrivate", "ExitPortStatistics",
    "ExitRelay", "ExtendAllowPrivateAddresses", "ExtendByEd25519ID", "ExtORPort",
    "ExtORPortCookieAuthFile", "ExtORPortCookieAuthFileGroupReadable", "ExtraInfoStatistics",
    "FallbackDir", "FamilyId", "FamilyKeyDirectory", "FascistFirewall", "FetchDirInfoEarly",
    "FetchDirInfoExtraEarly", "FetchHidServDescriptors", "FetchServerDescriptors",
    "FetchUselessDescriptors", "FirewallPorts", "GeoIPExcludeUnknown", "GeoIPFile", "GeoIPv6File",
    "GuardfractionFile", "GuardLifetime", "HardwareAccel", "HashedControlPassword",
    "HeartbeatPeriod", "HiddenServiceAllowUnknownPorts", "HiddenServiceDir",
    "HiddenServiceDirGroupReadable", "HiddenServiceEnableIntroDoSBurstPerSec",
    "HiddenServiceEnableIntroDoSDefense", "HiddenServiceEnableIntroDoSRatePerSec",
    "HiddenServiceExportCircuitID", "HiddenServiceMaxStreams",
    "HiddenServiceMaxStreamsCloseCircuit", "HiddenServiceNonAnonymousMode",
    "HiddenServiceNumIntroductionPoints", "HiddenServiceOnionBalanceInstance", "HiddenServicePort",
    "HiddenServicePoWDefensesEnabled", "HiddenServicePoWQueueBurst", "HiddenServicePoWQueueRate",
    "HiddenServiceSingleHopMode", "HiddenServiceStatistics", "HiddenServiceVersion",
    "HSLayer2Nodes", "HSLayer3Nodes", "HTTPProxy", "HTTPProxyAuthenticator", "HTTPSProxy",
    "HTTPSProxyAuthenticator", "HTTPTunnelPort", "IPv6Exit", "KeepalivePeriod",
    "KeepBindCapabilities", "KeyDirectory", "KeyDirectoryGroupReadable", "KISTSchedRunInterval",
    "KISTSockBufSizeFactor", "LearnCircuitBuildTimeout", "Log", "LogMessageDomains",
    "LogTimeGranularity", "LongLivedPorts", "MainloopStats", "MapAddress",
    "MaxAdvertisedBandwidth", "MaxCircuitDirtiness", "MaxClientCircuitsPending",
    "MaxConsensusAgeForDiffs", "MaxHSDirCacheBytes", "MaxMemInQueues", "MaxOnionQueueDelay",
    "MaxUnparseableDescSizeToLog", "MetricsPort", "MetricsPortPolicy", "MiddleNodes",
    "MinimalAcceptedServerVersion", "MinMeasuredBWsForAuthToIgnoreAdvertised",
    "MinUptimeHidServDirectoryV2", "MyFamily", "NATDPort", "NewCircuitPeriod", "Nickname",
    "NodeFamily", "NoExec", "NumCPUs", "NumDirectoryGuards", "NumEntryGuards", "NumPrimaryGuards",
    "OfflineMasterKey", "ORPort", "OutboundBindAddress", "OutboundBindAddressExit",
    "OutboundBindAddressOR", "OutboundBindAddressPT", "OverloadStatistics", "PaddingStatistics",
    "PathBiasCircThreshold", "PathBiasDropGuards", "PathBiasExtremeRate", "PathBiasExtremeUseRate",
    "PathBiasNoticeRate", "PathBiasNoticeUseRate", "PathBiasScaleThreshold",
    "PathBiasScaleUseThreshold", "PathBiasUseThreshold", "PathBiasWarnRate",
    "PathsNeededToBuildCircuits", "PerConnBWBurst", "PerConnBWRate", "PidFile", "ProtocolWarnings",
    "PublishHidServDescriptors", "PublishServerDescriptor", "ReachableAddresses",
    "ReachableDirAddresses", "ReachableORAddresses", "RecommendedClientVersions",
    "RecommendedServerVersions", "RecommendedVersions", "ReconfigDropsBridgeDescs",
    "ReducedCircuitPadding", "ReducedConnectionPadding", "ReducedExitPolicy",
    "ReevaluateExitPolicy", "RefuseUnknownExits", "RejectPlaintextPorts", "RelayBandwidthBurst",
    "RelayBandwidthRate", "RephistTrackTime", "RunAsDaemon", "SafeLogging", "SafeSocks", "Sandbox",
    "Schedulers", "ServerDNSAllowBrokenConfig", "ServerDNSAllowNonRFC953Hostnames",
    "ServerDNSDetectHijacking", "ServerDNSRandomizeCase", "ServerDNSResolvConfFile",
    "ServerDNSSearchDomains", "ServerDNSTestAddresses", "ServerTransportListenAddr",
    "ServerTransportOptions", "ServerTransportPlugin", "ShutdownWaitLength", "SigningKeyLifetime",
    "Socks4Proxy", "Socks5Proxy", "Socks5ProxyPassword", "Socks5ProxyUsername", "SocksPolicy",
    "SocksPort", "SocksTimeout", "SSLKeyLifetime", "StrictNodes", "SyslogIdentityTag", "TCPProxy",
    "TestingAuthDirTimeToLearnReachability", "TestingAuthKeyLifetime", "TestingAuthKeySlop",
    "TestingBridgeBootstrapDownloadInitialDelay", "TestingBridgeDownloadInitialDelay",
    "TestingClientConsensusDownloadInitialDelay", "TestingClientDownloadInitialDelay",
    "TestingClientMaxIntervalWithoutRequest", "TestingDirAuthVoteExit",
    "TestingDirAuthVoteExitIsStrict", "TestingDirAuthVoteGuard", "TestingDirAuthVoteGuardIsStrict",
    "TestingDirAuthVoteHSDir", "TestingDirAuthVoteHSDirIsStrict", "TestingDirConnectionMaxStall",
    "TestingEnableCellStatsEvent", "TestingEnableConnBwEvent", "TestingLinkCertLifetime",
    "TestingLinkKeySlop", "TestingMinExitFlagThreshold", "TestingMinFastFlagThreshold",
    "TestingMinTimeToReportBandwidth", "TestingServerConsensusDownloadInitialDelay",
    "TestingServerDownloadInitialDelay", "TestingSigningKeySlop", "TestingTorNetwork",
    "TestingV3AuthInitialDistDelay", "TestingV3AuthInitialVoteDelay",
    "TestingV3AuthInitialVotingInterval", "TestingV3AuthVotingStartOffset", "TestSocks",
    "TokenBucketRefillInterval", "TrackHostExits", "TrackHostExitsExpire", "TransPort",
    "TransProxyType", "TruncateLogFile", "UnixSocksGroupWritable", "UpdateBridgesFromAuthority",
    "UseBridges", "UseDefaultFallbackDirs", "UseEntryGuards", "UseGuardFraction",
    "UseMicrodescriptors", "User", "V3AuthDistDelay", "V3AuthNIntervalsValid",
    "V3AuthoritativeDirectory", "V3AuthUseLegacyKey", "V3AuthVoteDelay", "V3AuthVotingInterval",
    "V3BandwidthsFile", "VanguardsLiteEnabled", "VersioningAuthoritativeDirectory",
    "VirtualAddrNetworkIPv4", "VirtualAddrNetworkIPv6", "WarnPlaintextPorts",
];

/// Options that stock Tor knows and ignores, because what they did is gone.
#[rustfmt::skip]
const OBSOLETE: &[&str] = &[
    "AllowDotExit", "AllowInvalidNodes", "AllowSingleHopCircuits", "AllowSingleHopExits",
    "AlternateHSAuthority", "AuthDirBadDir", "AuthDirBadDirCCs", "AuthDirRejectUnlisted",
    "AuthDirListBadDirs", "AuthDirMaxServersPerAuthAddr", "CircuitIdleTimeout",
    "ClientAutoIPv6ORPort", "ControlListenAddress", "DirListenAddress", "DisableIOCP",
    "DisableV2DirectoryInfo_", "DynamicDHGroups", "DNSListenAddress", "TestingEnableTbEmptyEvent",
    "TestingEstimatedDescriptorPropagationTime", "ExcludeSingleHopRelays",
    "FallbackNetworkstatusFile", "FastFirstHopPK", "FetchV2Networkstatus", "Group",
    "HidServDirectoryV2", "HiddenServiceAuthorizeClient", "HidServAuth",
    "CloseHSClientCircuitsImmediatelyOnTimeout", "CloseHSServiceRendCircuitsImmediatelyOnTimeout",
    "AndroidIdentityTag", "MaxOnionsPending", "NamingAuthoritativeDirectory", "NATDListenAddress",
    "PredictedPortsRelevanceTime", "WarnUnsafeSocks", "ORListenAddress", "PathBiasDisableRate",
    "PathBiasScaleFactor", "PathBiasMultFactor", "PathBiasUseCloseCounts", "OptimisticData",
    "PortForwarding", "PortForwardingHelper", "PreferTunneledDirConns", "RecommendedPackages",
    "RunTesting", "SchedulerLowWaterMark__", "SchedulerHighWaterMark__",
    "SchedulerMaxFlushCells__", "SocksListenAddress", "StrictEntryNodes", "StrictExitNodes",
    "Support022HiddenServices", "Tor2webMode", "Tor2webRendezvousPoints", "TLSECGroup",
    "TransListenAddress", "TunnelDirConns", "UseEntryGuardsAsDirGuards", "UseNTorHandshake",
    "UserspaceIOCPBuffers", "V1AuthoritativeDirectory", "V2AuthoritativeDirectory",
    "VoteOnHidServDirectoriesV2", "UseFilteringSSLBufferevents", "__UseFilteringSSLBufferevents",
    "TestingConsensusMaxDownloadTries", "ClientBootstrapConsensusMaxDownloadTries",
    "ClientBootstrapConsensusAuthorityOnlyMaxDownloadTries", "TestingDescriptorMaxDownloadTries",
    "TestingMicrodescMaxDownloadTries", "TestingCertMaxDownloadTries",
];

/// Other names stock Tor takes for its options: old name, name today.
const ALIASES: &[(&str, &str)] = &[
    ("AuthDirBadDirCC", "AuthDirBadDirCCs"),
    ("AuthDirBadExitCC", "AuthDirBadExitCCs"),
    ("AuthDirInvalidCC", "AuthDirInvalidCCs"),
    ("AuthDirMiddleOnlyCC", "AuthDirMiddleOnlyCCs"),
    ("AuthDirRejectCC", "AuthDirRejectCCs"),
    ("EntryNode", "EntryNodes"),
    ("ExcludeNode", "ExcludeNodes"),
    ("FirewallPort", "FirewallPorts"),
    ("LongLivedPort", "LongLivedPorts"),
    ("HiddenServiceNode", "HiddenServiceNodes"),
    ("HiddenServiceExcludeNode", "HiddenServiceExcludeNodes"),
    ("NumCPU", "NumCPUs"),
    ("RendNode", "RendNodes"),
    ("RecommendedPackage", "RecommendedPackages"),
    ("RendExcludeNode", "RendExcludeNodes"),
    ("StrictEntryNode", "StrictEntryNodes"),
    ("StrictExitNode", "StrictExitNodes"),
    ("StrictNode", "StrictNodes"),
    ("AllowUnverifiedNodes", "AllowInvalidNodes"),
    ("AutomapHostSuffixes", "AutomapHostsSuffixes"),
    ("AutomapHostOnResolve", "AutomapHostsOnResolve"),
    ("BandwidthRateBytes", "BandwidthRate"),
    ("BandwidthBurstBytes", "BandwidthBurst"),
    ("DirFetchPostPeriod", "StatusFetchPeriod"),
    ("DirServer", "DirAuthority"),
    ("MaxConn", "ConnLimit"),
    ("MaxMemInCellQueues", "MaxMemInQueues"),
    ("ORBindAddress", "ORListenAddress"),
    ("DirBindAddress", "DirListenAddress"),
    ("SocksBindAddress", "SocksListenAddress"),
    ("UseHelperNodes", "UseEntryGuards"),
    ("NumHelperNodes", "NumEntryGuards"),
    ("UseEntryNodes", "UseEntryGuards"),
    ("NumEntryNodes", "NumEntryGuards"),
    ("ResolvConf", "ServerDNSResolvConfFile"),
    ("SearchDomains", "ServerDNSSearchDomains"),
    ("ServerDNSAllowBrokenResolvConf", "ServerDNSAllowBrokenConfig"),
    ("PreferTunnelledDirConns", "PreferTunneledDirConns"),
    ("BridgeAuthoritativeDirectory", "BridgeAuthoritativeDir"),
    ("VirtualAddrNetwork", "VirtualAddrNetworkIPv4"),
    ("SocksSocketsGroupWritable", "UnixSocksGroupWritable"),
    ("_HSLayer2Nodes", "HSLayer2Nodes"),
    ("_HSLayer3Nodes", "HSLayer3Nodes"),
    (
        "ClientBootstrapConsensusAuthorityDownloadSchedule",
        "ClientBootstrapConsensusAuthorityDownloadInitialDelay",
    ),
    (
        "ClientBootstrapConsensusAuthorityOnlyDownloadSchedule",
        "ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay",
    ),
    (
        "ClientBootstrapConsensusFallbackDownloadSchedule",
        "ClientBootstrapConsensusFallbackDownloadInitialDelay",
    ),
    ("TestingBridgeDownloadSchedule", "TestingBridgeDownloadInitialDelay"),
    ("TestingBridgeBootstrapDownloadSchedule", "TestingBridgeBootstrapDownloadInitialDelay"),
    ("TestingClientDownloadSchedule", "TestingClientDownloadInitialDelay"),
    ("TestingClientConsensusDownloadSchedule", "TestingClientConsensusDownloadInitialDelay"),
    ("TestingServerDownloadSchedule", "TestingServerDownloadInitialDelay"),
    ("TestingServerConsensusDownloadSchedule", "TestingServerConsensusDownloadInitialDelay"),
];

/// What a name in a torrc turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// An option of stock Tor, by its full name.
    Stock(&'static str),
    /// The beginning of an option's name, which stock Tor still takes with a warning.
    Abbreviation(&'static str),
    /// An option that stock Tor ignores.
    Obsolete(&'static str),
    /// No option; the name that is closest to it, when one is close.
    Unknown(Option<&'static str>),
}

/// Finds a name regardless of case, by its aliases and, as stock Tor does, by its beginning.
pub(super) fn find(name: &str) -> Name {
    let name =
        ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map_or(name, |(_, full)| full);
    if let Some(full) = STOCK.iter().find(|full| full.eq_ignore_ascii_case(name)) {
        return Name::Stock(full);
    }
    if let Some(full) = OBSOLETE.iter().find(|full| full.eq_ignore_ascii_case(name)) {
        return Name::Obsolete(full);
    }
    let begins = |full: &&&str| {
        full.len() > name.len()
            && full.is_char_boundary(name.len())
            && full[..name.len()].eq_ignore_ascii_case(name)
    };
    match STOCK.iter().find(begins) {
        Some(full) if !name.is_empty() => Name::Abbreviation(full),
        _ => Name::Unknown(closest(name)),
    }
}

/// The option whose name takes the fewest single-letter edits, at most a third of its letters.
fn closest(name: &str) -> Option<&'static str> {
    const NAME_BYTES_MAX: usize = 64;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = name.to_ascii_lowercase();
    STOCK
        .iter()
        .map(|full| (edit_distance(&name, &full.to_ascii_lowercase()), *full))
        .filter(|(distance, full)| *distance <= full.len() / 3)
        .min()
        .map(|(_, full)| full)
}

/// Levenshtein's distance in bytes.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (index, byte_a) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, byte_b) in b.bytes().enumerate() {
            let substitute = diagonal + usize::from(byte_a != byte_b);
            diagonal = row[column + 1];
            row[column + 1] = substitute.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_any_spelling() {
        assert_eq!(find("nickname"), Name::Stock("Nickname"));
        assert_eq!(find("DirServer"), Name::Stock("DirAuthority"));
        assert_eq!(find("numcpu"), Name::Stock("NumCPUs"));
        assert_eq!(find("ORListenAddress"), Name::Obsolete("ORListenAddress"));
        assert_eq!(find("Nick"), Name::Abbreviation("Nickname"));
        assert_eq!(find("BandwithRate"), Name::Unknown(Some("BandwidthRate")));
        assert_eq!(find("Blubber"), Name::Unknown(None));
        assert_eq!(find(""), Name::Unknown(None));
        assert_eq!(find("äöü"), Name::Unknown(None));
    }
}
