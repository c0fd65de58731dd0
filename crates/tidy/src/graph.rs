//! The workspace's crates and their dependencies, as `cargo metadata` tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// One crate of the dependency graph.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its licence expression; empty when it states none.
    pub licence: String,
    /// Whether it is one of ours.
    pub is_member: bool,
    /// The names of its direct dependencies of every kind.
    pub dependencies: BTreeSet<String>,
    /// The ids of what it is linked with: no build or test dependencies.
    linked: BTreeSet<String>,
}

/// All crates by cargo's package id.
#[derive(Clone, Debug)]
pub struct Graph {
    packages: BTreeMap<String, Package>,
}

impl Graph {
    /// Asks cargo about the workspace at `root`, for the platform this program runs on and without the network.
    pub fn load(root: &Path) -> Self {
        Self::load_with(root, &[])
    }

    /// The same where no crate has its default features, as `heddle-relay` is built.
    pub fn load_without_defaults(root: &Path) -> Self {
        Self::load_with(root, &["--no-default-features"])
    }

    fn load_with(root: &Path, features: &[&str]) -> Self {
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform])
            .args(features)
            .current_dir(root)
            .output()
            .expect("cargo runs, because it runs this test");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        Self::parse(&serde_json::from_slice(&output.stdout).expect("cargo writes JSON"))
    }

    /// The names of what a crate is linked with where it is built by itself: what tests of other crates want of those
    /// that both use is not in it.
    pub fn linked_alone(root: &Path, name: &str) -> BTreeSet<String> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["tree", "--offline", "--package", name, "--edges", "normal", "--prefix", "none"])
            .args(["--format", "{p}"])
            .current_dir(root)
            .output()
            .expect("cargo runs, because it runs this test");
        assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8_lossy(&output.stdout);
        let names = lines.lines().filter_map(|line| line.split_whitespace().next());
        names.filter(|linked| *linked != name).map(str::to_owned).collect()
    }

    fn parse(metadata: &Value) -> Self {
        let members: Vec<&str> = list(&metadata["workspace_members"]).filter_map(Value::as_str).collect();
        let mut packages: BTreeMap<String, Package> = list(&metadata["packages"])
            .map(|package| {
                let id = text(&package["id"]);
                let entry = Package {
                    name: text(&package["name"]),
                    licence: text(&package["license"]),
                    is_member: members.contains(&id.as_str()),
                    dependencies: list(&package["dependencies"])
                        .map(|dependency| text(&dependency["name"]))
                        .collect(),
                    linked: BTreeSet::new(),
                };
                (id, entry)
            })
            .collect();
        for node in list(&metadata["resolve"]["nodes"]) {
            let linked = list(&node["deps"])
                .filter(|dependency| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()));
            if let Some(package) = packages.get_mut(&text(&node["id"])) {
                package.linked = linked.map(|dependency| text(&dependency["pkg"])).collect();
            }
        }
        Self { packages }
    }

    /// All crates, ours and others.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.values()
    }

    /// Our own crates.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages().filter(|package| package.is_member)
    }

    /// The names of everything a crate of ours is linked with, however far down.
    pub fn linked_with(&self, name: &str) -> BTreeSet<&str> {
        let mut waiting: Vec<&Package> = self.members().filter(|package| package.name == name).collect();
        let mut found = BTreeSet::new();
        while let Some(package) = waiting.pop() {
            for dependency in package.linked.iter().filter_map(|id| self.packages.get(id)) {
                if found.insert(dependency.name.as_str()) {
                    waiting.push(dependency);
                }
            }
        }
        found
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
