//! The labs that exist, their owners, and the removal of what dead owners left behind.
//!
//! A lab is a directory below [`BASE`], which is a tmpfs mounted when the first lab is made and
//! unmounted with the last. The mount is shared: unmounting a namespace's pin here also unmounts it
//! for processes inside other labs, which have copies of the mount table.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde::{Deserialize, Serialize};

use super::faults;
use super::processes::{self, Identity};
use super::settings::{Faults, Settings};

/// The directory of all labs.
pub const BASE: &str = "/run/foldback/lab";
const PARENT: &str = "/run/foldback";
const RECORD: &str = "lab.json";

/// A lab, as recorded in its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lab {
    /// The name that the user or the command gave it.
    pub name: String,
    /// The number of its hosts.
    pub hosts: usize,
    /// Of its network.
    pub settings: Settings,
    /// The process that removes the lab at its end. None: it stays until `lab down`.
    pub owner: Option<Identity>,
    /// The lab is left over once this process has ended, though anybody may remove it before.
    pub lives_with: Option<Identity>,
    /// The network is complete.
    pub ready: bool,
    /// Of the fault program, if it is attached.
    pub fault_maps: Option<faults::Maps>,
    /// The faults of the frames to each host.
    pub faults: Vec<Faults>,
}

impl Lab {
    /// The directory of all that belongs to it.
    pub fn dir(&self) -> PathBuf {
        Path::new(BASE).join(&self.name)
    }

    /// The name of a host, which is also its host name.
    pub fn host(index: usize) -> String {
        format!("h{index}")
    }

    /// Names of all hosts.
    pub fn host_names(&self) -> impl Iterator<Item = String> {
        (0..self.hosts).map(Self::host)
    }

    /// The number of networks that join all hosts.
    pub fn networks(&self) -> usize {
        self.settings.networks.into()
    }

    /// The address of a host in one of its networks. Labs may all use the same ones: no two share a
    /// network.
    pub fn address(network: usize, index: usize) -> String {
        format!("10.77.{network}.{}", index + 1)
    }

    /// The directory of a host.
    pub fn host_dir(&self, host: &str) -> PathBuf {
        self.dir().join(host)
    }

    /// The file that keeps a host's network namespace alive.
    pub fn host_pin(&self, host: &str) -> PathBuf {
        self.host_dir(host).join("net")
    }

    /// The socket of a host's agent. Its name is unique, as the hosts share the file system.
    pub fn agent_socket(name: &str, host: &str) -> PathBuf {
        Path::new(BASE).join(name).join(host).join("agent.sock")
    }

    /// The file that keeps the fabric's network namespace alive.
    pub fn fabric_pin(&self) -> PathBuf {
        self.dir().join("fabric")
    }

    /// Writes the record, all of it or nothing.
    pub fn save(&self) -> Result<()> {
        let new = self.dir().join("lab.json.new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&new, self.dir().join(RECORD)))
            .with_context(|| format!("cannot record the lab in {}", self.dir().display()))
    }

    /// Whether the lab is complete and there for everyone.
    pub fn is_up(&self) -> bool {
        self.ready && self.owner.is_none()
    }

    fn orphaned(&self) -> bool {
        [&self.owner, &self.lives_with].into_iter().flatten().any(|process| !process.alive())
    }
}

/// Reserves a name and makes the lab's directory, after removing what is left over.
pub fn create(name: &str, hosts: usize, settings: &Settings) -> Result<Lab> {
    check_name(name)?;
    let _lock = lock()?;
    remove_orphans()?;
    mount_base()?;
    let lab = Lab {
        name: name.to_owned(),
        hosts,
        settings: settings.clone(),
        owner: Some(Identity::own()?),
        lives_with: None,
        ready: false,
        fault_maps: None,
        faults: vec![settings.faults.clone(); hosts],
    };
    match DirBuilder::new().mode(0o755).create(lab.dir()) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!(
                "there is a lab named {name} already: choose another --name, or remove it with foldback lab down --name {name}"
            )
        }
        other => other.with_context(|| format!("cannot create {}", lab.dir().display()))?,
    }
    lab.save()?;
    Ok(lab)
}

/// Reads the record of a lab.
pub fn open(name: &str) -> Result<Lab> {
    check_name(name)?;
    match find(name)? {
        Some(lab) => Ok(lab),
        None => bail!("there is no lab named {name}: foldback lab up makes one"),
    }
}

/// Reads the record of a lab that may not exist.
pub fn find(name: &str) -> Result<Option<Lab>> {
    let path = Path::new(BASE).join(name).join(RECORD);
    match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .with_context(|| format!("{} is damaged", path.display())),
    }
}

/// All labs, by name.
pub fn all() -> Result<Vec<Lab>> {
    let mut labs = Vec::new();
    for name in names()? {
        labs.extend(find(&name)?);
    }
    Ok(labs)
}

/// Removes a lab and everything that runs in it.
pub fn remove(name: &str) -> Result<()> {
    check_name(name)?;
    let _lock = lock()?;
    demolish(name)?;
    unmount_base()
}

/// Removes every lab that is left over.
pub fn sweep() -> Result<()> {
    let _lock = lock()?;
    remove_orphans()?;
    unmount_base()
}

/// One at a time may add or remove labs. The directory is never removed: it is the lock.
fn lock() -> Result<Flock<File>> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the lab makes network namespaces: run it as root (sudo foldback lab ...)"
    );
    fs::create_dir_all(PARENT).with_context(|| format!("cannot create {PARENT}"))?;
    let dir = File::open(PARENT).with_context(|| format!("cannot open {PARENT}"))?;
    Flock::lock(dir, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("cannot lock {PARENT}"))
}

fn names() -> Result<Vec<String>> {
    let entries = match fs::read_dir(BASE) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot read {BASE}"))?,
    };
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()
        .with_context(|| format!("cannot read {BASE}"))?;
    names.sort();
    Ok(names)
}

fn remove_orphans() -> Result<()> {
    for name in names()? {
        // No record: its maker died between making the directory and writing the record. A
        // damaged one: only a lab of another version could be that.
        let orphaned = match find(&name) {
            Ok(Some(lab)) => lab.orphaned(),
            Ok(None) => true,
            Err(error) => {
                log::warn!("{error:#}; remove it with: foldback lab down --name {name}");
                false
            }
        };
        if orphaned {
            log::info!("removing the lab {name}, which is left over");
            demolish(&name)?;
        }
    }
    Ok(())
}

/// Kills what runs in a lab, unmounts what is below its directory, deletes the directory.
fn demolish(name: &str) -> Result<()> {
    let dir = Path::new(BASE).join(name);
    ensure!(dir.is_dir(), "there is no lab named {name}");
    processes::kill_in_namespaces(&namespaces(&dir)?)?;
    for mountpoint in mounts_below(&dir)?.iter().rev() {
        umount2(mountpoint, MntFlags::MNT_DETACH)
            .with_context(|| format!("cannot unmount {}", mountpoint.display()))?;
    }
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// Device and inode of each network namespace pinned below `dir`.
fn namespaces(dir: &Path) -> Result<Vec<(u64, u64)>> {
    mounts_below(dir)?
        .iter()
        .filter(|path| path.is_file())
        .map(|path| {
            let data =
                fs::metadata(path).with_context(|| format!("cannot examine {}", path.display()))?;
            Ok((data.dev(), data.ino()))
        })
        .collect()
}

fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read mountinfo")?;
    // Field 5 is the mount point. Our names have none of the characters that are escaped there.
    let below = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|path| path.starts_with(dir) && path != dir);
    Ok(below.collect())
}

fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
    device(path) != path.parent().and_then(device)
}

fn mount_base() -> Result<()> {
    let base = Path::new(BASE);
    fs::create_dir_all(base).with_context(|| format!("cannot create {BASE}"))?;
    if is_mounted(base) {
        return Ok(());
    }
    let none: Option<&str> = None;
    mount(Some("foldback-lab"), base, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=755"))
        .and_then(|()| mount(none, base, none, MsFlags::MS_SHARED, none))
        .with_context(|| format!("cannot mount {BASE}"))
}

/// Unmounts the base if no lab is left.
fn unmount_base() -> Result<()> {
    let base = Path::new(BASE);
    if !base.exists() || !names()?.is_empty() {
        return Ok(());
    }
    if is_mounted(base) {
        umount2(base, MntFlags::MNT_DETACH).with_context(|| format!("cannot unmount {BASE}"))?;
    }
    fs::remove_dir(base).with_context(|| format!("cannot remove {BASE}"))
}

fn check_name(name: &str) -> Result<()> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    // An agent's socket path must fit in the 108 bytes of a Unix address.
    ensure!(
        plain && !name.is_empty() && name.len() <= 40,
        "{name:?} is no name for a lab: use 1 to 40 letters, digits, - and _"
    );
    Ok(())
}

/// Makes a directory that all users may write to, like /tmp.
pub fn make_public_dir(path: &Path) -> Result<()> {
    fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o1777)))
        .with_context(|| format!("cannot create {}", path.display()))
}
