//! What every report begins with: which program, when, on which system.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

/// Version and commit, as far as that is known: `0.1.0 (42a693c01234)`.
pub const VERSION: &str = env!("ARGON_VERSION");

/// The commit that this was built from, with a `+` where files were changed since; `None` outside of a checkout.
const COMMIT: Option<&str> = option_env!("ARGON_COMMIT");

/// The program, the time and the system.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// Version of this program.
    argon: &'static str,
    commit: Option<&'static str>,
    /// RFC 3339, in UTC.
    date: String,
    /// Name and version of the operating system, and the processor's architecture.
    system: String,
}

impl About {
    /// Here and now.
    pub fn now() -> About {
        let date = DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Secs, true);
        let system = sysinfo::System::long_os_version().unwrap_or_else(|| std::env::consts::OS.into());
        let system = format!("{system}, {}", std::env::consts::ARCH);
        About { argon: env!("CARGO_PKG_VERSION"), commit: COMMIT, date, system }
    }

    /// In a line.
    pub fn line(&self) -> String {
        format!("argon {VERSION}, {}, {}", self.date.replace('T', " ").replace('Z', " UTC"), self.system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_version_date_and_system() {
        let about = About::now();
        assert!(DateTime::parse_from_rfc3339(&about.date).is_ok(), "{}", about.date);
        let line =
            About { date: "2026-11-30T01:02:03Z".into(), system: "Linux, x86_64".into(), ..about.clone() }.line();
        assert_eq!(line, format!("argon {VERSION}, 2026-11-30 01:02:03 UTC, Linux, x86_64"));
        assert_eq!(about.commit.is_some(), VERSION.contains('('));
    }
}
