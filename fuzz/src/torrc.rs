//! The operator's torrc.

use heddle::torrc::Torrc;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // What a file includes is any file of this machine.
    if text.contains("include") {
        return;
    }
    // One file for each process: threads of one process would overwrite each other's.
    let path = std::env::temp_dir().join(format!("heddle-fuzz-torrc-{}", std::process::id()));
    std::fs::write(&path, data).expect("the temporary directory takes files");
    let outcome = Torrc::load(&path);
    std::fs::remove_file(&path).expect("the file is there");
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty());
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "ORPort 9001\nNickname heddle\nContactInfo \"me \\\"and\\\" you\" # comment\nExitPolicy accept *:80, reject *:*\n",
        "BandwidthRate 10 MBytes\nRelayBandwidthBurst 2 gbits\nMaxMemInQueues 512 MB\nORPort [::1]:auto IPv6Only\n",
        "+ExitPolicy accept6 [2001:db8::]/32:1-1024\n/ExitPolicy\nDataDirectory \\\n  /tmp/here\nAddress 203.0.114.7\n",
        "DirAuthority a orport=1 v3ident=3A1CEB849C2532E1BF0FF86900CF217296106DE4 127.0.0.1:9 \
         0000000000000000000000000000000000000000\nHeddleShards 4\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
