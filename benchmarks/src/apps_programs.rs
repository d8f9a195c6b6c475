//! The whole programs that `foldback bench apps` runs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use foldback::places;

/// A program as Debian has it, for Open MPI 4, and its work.
pub struct Entry {
    /// Its name for `--programs`.
    pub name: &'static str,
    pub what: &'static str,
    /// Files that it needs, or programs of `$PATH`. They are $1, $2, … of both commands.
    needs: &'static [&'static str],
    /// Names and texts of files for a directory of its own. @RANKS@ and @HALF@ stand for the number
    /// of ranks and for half of it.
    files: &'static [(&'static str, &'static str)],
    /// A command of the shell, run in that directory once, before the first job. It may be empty.
    prepare: &'static str,
    /// The command that each rank executes there.
    command: &'static str,
    /// Jobs, one after the other, that are timed as one.
    pub jobs: u32,
    /// About so many seconds, in the mean over 2 to 8 hosts of 2 CPUs.
    pub seconds: u32,
}

/// A file of `benchmarks/apps/`.
macro_rules! input {
    ($name:literal) => {
        ($name, include_str!(concat!("../apps/", $name)))
    };
}

/// An example of PETSc's.
macro_rules! petsc {
    ($path:literal) => {
        concat!("/usr/share/petsc/3.18/share/petsc/examples/src/", $path)
    };
}

const BUILD_PETSC: &str =
    "mpicc.openmpi -O2 -w -o example \"$2\" $(pkg-config --cflags --libs petsc) -lm";

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "melt",
        what: "LAMMPS: a melt of 4,000 atoms, 1,500 steps",
        needs: &["lmp"],
        files: &[input!("melt.lammps")],
        prepare: "",
        command: "exec $1 -log none -in melt.lammps",
        jobs: 1,
        seconds: 6,
    },
    Entry {
        name: "melt-long",
        what: "LAMMPS: the same, 8,000 steps",
        needs: &["lmp"],
        files: &[input!("melt.lammps")],
        prepare: "",
        command: "exec $1 -log none -var steps 8000 -in melt.lammps",
        jobs: 1,
        seconds: 25,
    },
    Entry {
        name: "ex19",
        what: "PETSc, SNES ex19: non-linear equations by multigrid",
        needs: &["mpicc.openmpi", petsc!("snes/tutorials/ex19.c")],
        files: &[],
        prepare: BUILD_PETSC,
        command: "exec ./example -skip_petscrc -da_refine 5 -pc_type mg",
        jobs: 1,
        seconds: 2,
    },
    Entry {
        name: "ex19-neighbor",
        what: "PETSc: the same as ex19, by collectives of neighbours",
        needs: &["mpicc.openmpi", petsc!("snes/tutorials/ex19.c")],
        files: &[],
        prepare: BUILD_PETSC,
        command: "exec ./example -skip_petscrc -sf_type neighbor -da_refine 5 -pc_type mg",
        jobs: 1,
        seconds: 2,
    },
    Entry {
        name: "ex2",
        what: "PETSc, KSP ex2: linear equations by conjugate gradients, to stagnation",
        needs: &["mpicc.openmpi", petsc!("ksp/ksp/tutorials/ex2.c")],
        files: &[],
        prepare: BUILD_PETSC,
        command: "exec ./example -skip_petscrc -m 200 -n 200 -ksp_type cg -pc_type jacobi \
                  -ksp_rtol 1e-50 -ksp_atol 1e-50 -ksp_max_it 3100",
        jobs: 1,
        seconds: 3,
    },
    Entry {
        name: "ex2-neighbor",
        what: "PETSc: the same as ex2, by collectives of neighbours",
        needs: &["mpicc.openmpi", petsc!("ksp/ksp/tutorials/ex2.c")],
        files: &[],
        prepare: BUILD_PETSC,
        command: "exec ./example -skip_petscrc -sf_type neighbor -m 200 -n 200 -ksp_type cg -pc_type jacobi \
                  -ksp_rtol 1e-50 -ksp_atol 1e-50 -ksp_max_it 3100",
        jobs: 1,
        seconds: 3,
    },
    Entry {
        name: "mumps",
        what: "MUMPS, dsimpletest: a sparse matrix of 90,000 rows, factored",
        needs: &["/usr/lib/mumps/dsimpletest"],
        files: &[input!("laplace.awk")],
        prepare: "awk -v SIDE=300 -f laplace.awk >matrix",
        command: "exec $1 <matrix",
        jobs: 1,
        seconds: 3,
    },
    Entry {
        name: "scalapack",
        what: "ScaLAPACK, xdlu: dense matrices of 300 to 600 rows, factored and solved",
        needs: &["/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdlu"],
        files: &[("LU.dat", include_str!("../apps/lu.dat"))],
        prepare: "",
        command: "exec $1",
        jobs: 1,
        seconds: 3,
    },
    Entry {
        name: "hpcc",
        what: "HPC Challenge: HPL of 1,000 rows, and its other benchmarks",
        needs: &["hpcc"],
        files: &[input!("hpccinf.txt")],
        prepare: "",
        command: "exec $1",
        jobs: 1,
        seconds: 14,
    },
    Entry {
        name: "fft",
        what: "FFTW over MPI: a cube of 128 points a side, 20 times there and back",
        needs: &["mpicc.openmpi", "/usr/include/fftw3-mpi.h"],
        files: &[input!("fft.c")],
        prepare: "mpicc.openmpi -O2 -o fft fft.c -lfftw3_mpi -lfftw3 -lm",
        command: "exec ./fft 128 20",
        jobs: 1,
        seconds: 3,
    },
    Entry {
        name: "gromacs",
        what: "GROMACS: a box of 2,100 molecules of water, 500 steps",
        needs: &["gmx_mpi", "gmx"],
        files: &[input!("water.mdp"), input!("water.top")],
        prepare: "$2 -quiet solvate -cs spc216.gro -box 4 4 4 -o water.gro -p water.top && \
                  $2 -quiet grompp -f water.mdp -c water.gro -p water.top -o water.tpr",
        command: "exec $1 -quiet -nobackup mdrun -s water.tpr -ntomp 1 -npme 0 -notunepme -dlb no \
                  -pin off -noconfout",
        jobs: 1,
        seconds: 7,
    },
    Entry {
        name: "study",
        what: "mpi4py: 20 jobs of a parameter study, one after the other",
        needs: &["/usr/bin/python3", "/usr/lib/python3/dist-packages/mpi4py"],
        files: &[input!("study.py")],
        prepare: "",
        command: "exec $1 study.py",
        jobs: 20,
        seconds: 10,
    },
];

impl Entry {
    /// The first thing that is not installed.
    pub fn missing(&self) -> Option<&'static str> {
        self.needs.iter().copied().find(|need| {
            if need.starts_with('/') {
                !Path::new(need).exists()
            } else {
                places::in_path(need).is_none()
            }
        })
    }

    /// Writes its files into its directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path, ranks: u64) -> Result<()> {
        for (name, text) in self.files {
            let path = directory.join(name);
            fs::write(&path, filled(text, ranks))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Words that prepare it; `None`: there is nothing to do.
    pub fn preparation(&self, directory: &Path) -> Option<Vec<String>> {
        (!self.prepare.is_empty()).then(|| self.shell(self.prepare, directory))
    }

    /// Words that a rank executes.
    pub fn words(&self, directory: &Path) -> Vec<String> {
        self.shell(self.command, directory)
    }

    fn shell(&self, command: &str, directory: &Path) -> Vec<String> {
        let script = format!("cd '{}' && {command}", directory.display());
        let words = ["/bin/sh", "-c", &script, self.name];
        words.iter().chain(self.needs).map(|word| (*word).to_owned()).collect()
    }
}

fn filled(text: &str, ranks: u64) -> String {
    text.replace("@RANKS@", &ranks.to_string()).replace("@HALF@", &(ranks / 2).to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ() {
        let names: BTreeSet<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), ENTRIES.len());
    }

    #[test]
    fn grids_have_all_ranks() {
        assert_eq!(filled("2 values of P\n@HALF@ values of Q", 8), "2 values of P\n4 values of Q");
        let left =
            |entry: &Entry| entry.files.iter().any(|(_, text)| filled(text, 4).contains('@'));
        assert!(!ENTRIES.iter().any(left));
    }

    #[test]
    fn commands_have_what_they_need_as_parameters() {
        let study = ENTRIES.iter().find(|entry| entry.name == "study").unwrap();
        let words = study.words(Path::new("/tmp/study"));
        assert_eq!(words[2], "cd '/tmp/study' && exec $1 study.py");
        assert_eq!(words[3..5], ["study", "/usr/bin/python3"]);
        assert_eq!(study.preparation(Path::new("/tmp")), None);
    }
}
