//! The tables of docs/using/coverage.md (the folded collectives and forms) and docs/using/environment.md
//! (the settings), and dist/foldback.conf. They are made of the code and of the library's exports, here, so that they
//! cannot lie.
//! FOLDBACK_RENEW_COVERAGE=1 writes them anew.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fmt::Write;
use std::path::Path;

use foldback::call::COLLECTIVES;
use foldback::config::settings;

const BEGIN: &str = "<!-- the table: made by tests/coverage.rs -->\n";
const END: &str = "<!-- the end of the table -->\n";

/// The library that is preloaded.
struct Library(*mut libc::c_void);

impl Library {
    fn open() -> Self {
        // Beside the tests' directory, which is deps/.
        let own = std::env::current_exe().expect("this executable");
        let path = own.parent().unwrap().parent().unwrap().join("libfoldback.so");
        let name = CString::new(path.to_str().expect("a path")).unwrap();
        // SAFETY: our own library, which does nothing when it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} is there: cargo build --release", path.display());
        Self(handle)
    }

    fn exports(&self, name: &str) -> bool {
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        unsafe { !libc::dlsym(self.0, name.as_ptr()).is_null() }
    }
}

fn table(library: &Library) -> String {
    let mut text = String::from(
        "| collective | how | types and ops | blocking | `_c` | `MPI_I…` | `MPI_I…_c` | `…_init` | `…_init_c` | Fortran |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for collective in COLLECTIVES {
        let name = collective.name();
        let lower = name.to_lowercase();
        let _ = write!(text, "| {name} | {} | {}", collective.how(), collective.types());
        let forms = [
            format!("MPI_{name}"),
            format!("MPI_{name}_c"),
            format!("MPI_I{lower}"),
            format!("MPI_I{lower}_c"),
            format!("MPI_{name}_init"),
            format!("MPI_{name}_init_c"),
            format!("mpi_{lower}_"),
        ];
        for form in forms {
            text.push_str(if library.exports(&form) { " | yes" } else { " | –" });
        }
        text.push_str(" |\n");
    }
    text
}

#[test]
fn the_table_is_what_the_library_does() {
    compare("docs/using/coverage.md", BEGIN, END, &table(&Library::open()));
}

#[test]
fn all_settings_are_documented() {
    for (index, table) in settings::tables().iter().enumerate() {
        let begin = format!("<!-- table {}: made by tests/coverage.rs -->\n", index + 1);
        compare("docs/using/environment.md", &begin, "<!-- end -->\n", table);
    }
}

#[test]
fn the_example_of_a_file_has_all_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/foldback.conf");
    let example = settings::example();
    if std::env::var_os("FOLDBACK_RENEW_COVERAGE").is_some() {
        std::fs::write(&path, example).expect("it is written");
    } else {
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == example, "dist/foldback.conf is old; FOLDBACK_RENEW_COVERAGE=1 renews it");
    }
}

/// Compares a table with the text between two lines of a document.
fn compare(document: &str, begin: &str, end: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(&path).expect(document);
    let (before, rest) = text.split_once(begin).expect("the table begins");
    let (there, after) = rest.split_once(end).expect("the table ends");
    if std::env::var_os("FOLDBACK_RENEW_COVERAGE").is_some() {
        std::fs::write(&path, [before, begin, table, end, after].concat()).expect("it is written");
    } else {
        assert!(there == table, "{document} is old; FOLDBACK_RENEW_COVERAGE=1 renews it:\n{table}");
    }
}

/// Functions that tell a program which MPI it has, or its abilities, are not ours to define.
#[test]
fn nothing_is_exported_by_which_programs_tell_their_mpi() {
    let library = Library::open();
    for name in [
        "MPI_Get_version",
        "MPI_Get_library_version",
        "MPI_Abi_get_version",
        "MPI_Session_init",
        "MPI_Comm_create_from_group",
        "MPI_Send_c",
        "ompi_mpi_comm_world",
        "PMPI_Init",
    ] {
        // Looked up through the library, so also in what it needs: that must not be an MPI either.
        assert!(!library.exports(name), "{name} is exported");
    }
}
