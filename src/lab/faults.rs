//! The fault program (`bpf/lab_faults.bpf.c`): attaching it, reading its counters.

use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use foldback::bindings::lab_faults::LabFaultsSkelBuilder;
use foldback::bindings::{LF_FIRST_PORT, lf_counters};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, TC_EGRESS, TcHookBuilder};

use super::registry::Lab;
use super::settings::FaultsOn;

/// Attaches the program to all ports of the fabric, whose namespace the calling thread is in.
/// Returns the id of the map with the counters. What is attached keeps itself alive: the port
/// holds the program, the program holds the map.
pub fn attach(lab: &Lab) -> Result<u32> {
    let settings = &lab.settings;
    let mut object = MaybeUninit::uninit();
    let mut skeleton = LabFaultsSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the fault program")?;
    skeleton.maps.ports.set_max_entries(u32::try_from(lab.hosts)?)?;
    let constants = skeleton.maps.rodata_data.as_deref_mut().context("no constants to set")?;
    constants.lf_seed = settings.seed;
    constants.lf_loss = settings.loss.fixed_point();
    constants.lf_duplicate = settings.dup.fixed_point();
    constants.lf_reorder = settings.reorder.fixed_point();
    constants.lf_corrupt = settings.corrupt.fixed_point();
    constants.lf_udp_only = u8::from(settings.faults_on == FaultsOn::Udp);
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
    Ok(skeleton.maps.ports.info()?.info.id)
}

/// What befell the frames to each host.
pub fn counters(lab: &Lab) -> Result<Option<Vec<lf_counters>>> {
    let Some(id) = lab.fault_map else { return Ok(None) };
    let map = MapHandle::from_map_id(id).context("cannot open the fault counters")?;
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
