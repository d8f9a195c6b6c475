//! The fault program (`bpf/lab_faults.bpf.c`): attaching it, setting its rates, reading its counters.

use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, TC_EGRESS, TcHookBuilder};
use serde::{Deserialize, Serialize};

use super::registry::Lab;
use super::settings::{Faults, FaultsOn};
use crate::bindings::lab_faults::LabFaultsSkelBuilder;
use crate::bindings::{LF_FIRST_PORT, lf_counters, lf_rates};

/// Ids of the program's maps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Maps {
    ports: u32,
    rates: u32,
}

/// Attaches the program to all ports of the fabric, whose namespace the calling thread is in. Nothing
/// befalls anything yet. An attached program stays alive: the port holds the program, the program
/// holds the maps.
pub fn attach(lab: &Lab) -> Result<Maps> {
    let mut object = MaybeUninit::uninit();
    let mut skeleton = LabFaultsSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the fault program")?;
    let ports = u32::try_from(lab.hosts)?;
    skeleton.maps.ports.set_max_entries(ports)?;
    skeleton.maps.rates.set_max_entries(ports)?;
    let constants = skeleton.maps.rodata_data.as_deref_mut().context("no constants to set")?;
    constants.lf_seed = lab.settings.seed;
    let skeleton = skeleton.load().context("the kernel refuses the fault program")?;

    for port in 0..lab.hosts {
        TcHookBuilder::new(skeleton.progs.lab_faults.as_fd())
            .ifindex(i32::try_from(LF_FIRST_PORT as usize + port)?)
            .handle(1)
            .priority(1)
            .hook(TC_EGRESS)
            .create()
            .and_then(|mut hook| hook.attach())
            .with_context(|| format!("cannot attach the fault program to port {port}"))?;
    }
    let id = |map: &libbpf_rs::Map<'_>| Ok::<_, anyhow::Error>(map.info()?.info.id);
    Ok(Maps { ports: id(&skeleton.maps.ports)?, rates: id(&skeleton.maps.rates)? })
}

/// From now on, `faults` apply to the frames to these hosts.
pub fn set(maps: Maps, hosts: impl Iterator<Item = usize>, faults: &Faults) -> Result<()> {
    let map = MapHandle::from_map_id(maps.rates).context("cannot open the rates of faults")?;
    let (udp_only, udp_port) = match faults.faults_on {
        FaultsOn::All => (0, 0),
        FaultsOn::Udp => (1, 0),
        FaultsOn::UdpPort(port) => (1, u32::from(port)),
    };
    let mut value = [0; size_of::<lf_rates>()];
    for (offset, share) in [
        (offset_of!(lf_rates, loss), faults.loss),
        (offset_of!(lf_rates, corrupt), faults.corrupt),
        (offset_of!(lf_rates, duplicate), faults.dup),
        (offset_of!(lf_rates, reorder), faults.reorder),
    ] {
        value[offset..offset + 8].copy_from_slice(&share.fixed_point().to_ne_bytes());
    }
    for (offset, word) in [
        (offset_of!(lf_rates, udp_only), udp_only),
        (offset_of!(lf_rates, udp_port), udp_port),
        (offset_of!(lf_rates, above), faults.faults_above),
    ] {
        value[offset..offset + 4].copy_from_slice(&u32::to_ne_bytes(word));
    }
    for host in hosts {
        map.update(&u32::try_from(host)?.to_ne_bytes(), &value, MapFlags::ANY)
            .with_context(|| format!("cannot set the faults of h{host}"))?;
    }
    Ok(())
}

/// The faults so far of the frames to each host.
pub fn counters(lab: &Lab) -> Result<Option<Vec<lf_counters>>> {
    let Some(maps) = lab.fault_maps else { return Ok(None) };
    let map = MapHandle::from_map_id(maps.ports).context("cannot open the fault counters")?;
    let all = (0..lab.hosts as u32).map(|port| {
        let value = map.lookup(&port.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.with_context(|| format!("port {port} has no counters"))?;
        ensure!(value.len() >= size_of::<lf_counters>(), "the fault counters are of another kind");
        let word = |offset: usize| {
            u64::from_ne_bytes(value[offset..offset + 8].try_into().expect("8 bytes"))
        };
        Ok(lf_counters {
            frames: word(offset_of!(lf_counters, frames)),
            lost: word(offset_of!(lf_counters, lost)),
            duplicated: word(offset_of!(lf_counters, duplicated)),
            reordered: word(offset_of!(lf_counters, reordered)),
            corrupted: word(offset_of!(lf_counters, corrupted)),
            failed: word(offset_of!(lf_counters, failed)),
        })
    });
    all.collect::<Result<_>>().map(Some)
}
