//! Which programs make a control plane and what they are built from. This file is data: a new program is a line
//! in [`PROGRAMS`], a new Kubernetes version a line in [`KUBERNETES`]. How and when they are built is decided in
//! [`build`](crate::build).

use sha2::{Digest, Sha256};

/// A Go module of ours that does nothing but pin what the programs are built from.
///
/// Kubernetes and etcd refuse `go install pkg@version` (their go.mod files hold replace lines), hence a module per
/// family; one for all would mix their pins.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// Code of ours: names of files and what is in them.
    pub(crate) sources: &'static [(&'static str, &'static str)],
}

/// Which module a program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Etcd,
    Kubernetes,
    /// No part of a control plane, so nobody else's folder has it, and it lies in one of its own.
    Apart(Apart),
}

/// A family that is built by itself, the same for every Kubernetes version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// Programs of ours that stand on client-go.
    ClientGo,
    Helm,
    /// Writes the chart's README from its values.
    HelmDocs,
    /// Checks alerting rules, and runs their unit tests.
    Promtool,
}

impl Apart {
    fn module(self) -> &'static Module {
        match self {
            Self::ClientGo => &CLIENT_GO,
            Self::Helm => &HELM,
            Self::HelmDocs => &HELM_DOCS,
            Self::Promtool => &PROMTOOL,
        }
    }

    /// What a program says of its version, where it would otherwise say that it knows none.
    fn version_flag(self) -> &'static str {
        match self {
            Self::ClientGo => "",
            Self::Helm => " -X helm.sh/helm/v4/internal/version.version=v4.3.1",
            Self::HelmDocs => " -X main.version=1.14.2",
            Self::Promtool => " -X github.com/prometheus/common/version.Version=3.16.0",
        }
    }
}

/// A program that can be built.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) family: Family,
    /// Whether a control plane for tests is incomplete without it. The others are built when they are asked for.
    pub(crate) default: bool,
}

/// Ordered so that a cold cache serves the quickest first and an early failure costs little.
pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        family: Family::Etcd,
        default: true,
    },
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", true),
    kubernetes(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        true,
    ),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl", true),
    Program {
        name: "etcdctl",
        package: "go.etcd.io/etcd/etcdctl/v3",
        family: Family::Etcd,
        default: false,
    },
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", false),
    kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet", false),
    apart(
        "clientgo-elector",
        "controlplane.local/client-go",
        Apart::ClientGo,
    ),
    apart("helm", "helm.sh/helm/v4/cmd/helm", Apart::Helm),
    apart(
        "helm-docs",
        "github.com/norwoodj/helm-docs/cmd/helm-docs",
        Apart::HelmDocs,
    ),
    apart(
        "promtool",
        "github.com/prometheus/prometheus/cmd/promtool",
        Apart::Promtool,
    ),
];

const fn apart(name: &'static str, package: &'static str, family: Apart) -> Program {
    Program {
        name,
        package,
        family: Family::Apart(family),
        default: false,
    }
}

const fn kubernetes(name: &'static str, package: &'static str, default: bool) -> Program {
    Program {
        name,
        package,
        family: Family::Kubernetes,
        default,
    }
}

const ETCD: Module = Module {
    name: "etcd",
    go_mod: include_str!("../modules/etcd/go.mod"),
    go_sum: include_str!("../modules/etcd/go.sum"),
    sources: &[],
};

const CLIENT_GO: Module = Module {
    name: "client-go",
    go_mod: include_str!("../modules/client-go/go.mod"),
    go_sum: include_str!("../modules/client-go/go.sum"),
    sources: &[("main.go", include_str!("../modules/client-go/main.go"))],
};

const HELM: Module = Module {
    name: "helm",
    go_mod: include_str!("../modules/helm/go.mod"),
    go_sum: include_str!("../modules/helm/go.sum"),
    sources: &[],
};

const HELM_DOCS: Module = Module {
    name: "helm-docs",
    go_mod: include_str!("../modules/helm-docs/go.mod"),
    go_sum: include_str!("../modules/helm-docs/go.sum"),
    sources: &[],
};

const PROMTOOL: Module = Module {
    name: "promtool",
    go_mod: include_str!("../modules/promtool/go.mod"),
    go_sum: include_str!("../modules/promtool/go.sum"),
    sources: &[],
};

/// A Kubernetes version that tests can run on.
#[derive(Debug)]
pub(crate) struct Kubernetes {
    /// What [`VARIABLE`] names it by.
    pub(crate) minor: &'static str,
    /// What its programs say they are. Must be the version in `module`.
    pub(crate) version: &'static str,
    module: Module,
}

/// The first is the default.
pub(crate) const KUBERNETES: &[Kubernetes] = &[
    Kubernetes {
        minor: "1.37",
        version: "v1.37.2",
        module: Module {
            name: "kubernetes",
            go_mod: include_str!("../modules/kubernetes/go.mod"),
            go_sum: include_str!("../modules/kubernetes/go.sum"),
            sources: &[],
        },
    },
    Kubernetes {
        minor: "1.36",
        version: "v1.36.3",
        module: Module {
            name: "kubernetes-1.36",
            go_mod: include_str!("../modules/kubernetes-1.36/go.mod"),
            go_sum: include_str!("../modules/kubernetes-1.36/go.sum"),
            sources: &[],
        },
    },
];

/// Picks the Kubernetes version, by its minor: `1.37`, `1.36`.
pub(crate) const VARIABLE: &str = "LEASEWARDEN_KUBERNETES";

/// `LEASEWARDEN_KUBERNETES` names a version that there is no module for.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}={asked:?}: the versions to choose from are {}", KUBERNETES.iter().map(|k| k.minor).collect::<Vec<_>>().join(", "))]
pub struct UnknownVersion {
    asked: String,
}

impl Kubernetes {
    /// The version that the environment picks.
    pub(crate) fn chosen() -> Result<&'static Self, UnknownVersion> {
        match std::env::var(VARIABLE) {
            Ok(asked) if !asked.is_empty() => Self::named(&asked),
            _ => Ok(&KUBERNETES[0]),
        }
    }

    fn named(asked: &str) -> Result<&'static Self, UnknownVersion> {
        let wanted = asked.trim_start_matches('v');
        KUBERNETES
            .iter()
            .find(|k| k.minor == wanted || k.version.trim_start_matches('v') == wanted)
            .ok_or_else(|| UnknownVersion {
                asked: asked.to_owned(),
            })
    }

    pub(crate) fn module(&self, family: Family) -> &Module {
        match family {
            Family::Etcd => &ETCD,
            Family::Kubernetes => &self.module,
            Family::Apart(family) => family.module(),
        }
    }

    /// The linker flags. Without the version in them `/version` says v0.0.0-master, and helm's kubeVersion check,
    /// kubectl and whatever parses it go wrong.
    pub(crate) fn ldflags(&self, family: Family) -> String {
        match family {
            Family::Etcd => "-s -w".to_owned(),
            Family::Apart(family) => format!("-s -w{}", family.version_flag()),
            Family::Kubernetes => {
                let version = self.version;
                let (major, minor) = self.minor.split_once('.').unwrap_or((self.minor, ""));
                format!(
                    "-s -w -X k8s.io/component-base/version.gitVersion={version} \
                     -X k8s.io/component-base/version.gitMajor={major} \
                     -X k8s.io/component-base/version.gitMinor={minor} \
                     -X k8s.io/client-go/pkg/version.gitVersion={version}"
                )
            }
        }
    }

    /// Names the cache folder of a family: what is in it for people, the hash so that changed pins, flags or code never
    /// meet old programs. What a control plane consists of lies together; a change of what lies apart has none of it
    /// built again.
    pub(crate) fn cache_key(&self, family: Family) -> String {
        let (name, families) = match family {
            Family::Etcd | Family::Kubernetes => (
                self.version.trim_start_matches('v'),
                vec![Family::Etcd, Family::Kubernetes],
            ),
            Family::Apart(apart) => (apart.module().name, vec![family]),
        };
        let mut hash = Sha256::new();
        for family in families {
            let module = self.module(family);
            let flags = self.ldflags(family);
            let sources = module.sources.iter().map(|(_, code)| *code);
            for part in [module.go_mod, module.go_sum, &flags].into_iter().chain(sources) {
                hash.update(part.as_bytes());
                hash.update([0]);
            }
        }
        let hash = data_encoding::HEXLOWER.encode(&hash.finalize());
        format!("{name}-{}", &hash[..10])
    }
}

/// The program of that name.
pub(crate) fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|p| p.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_programs_report_is_the_one_that_is_built() {
        for kubernetes in KUBERNETES {
            let pin = format!("require k8s.io/kubernetes {}\n", kubernetes.version);
            assert!(kubernetes.module.go_mod.contains(&pin), "{}", kubernetes.minor);
            assert!(kubernetes.version.starts_with(&format!("v{}.", kubernetes.minor)));
        }
    }

    #[test]
    fn every_program_is_a_tool_of_its_module_or_the_module_itself() {
        for kubernetes in KUBERNETES {
            for program in PROGRAMS {
                let module = kubernetes.module(program.family);
                let line = match program.family {
                    Family::Apart(Apart::ClientGo) => format!("\nmodule {}\n", program.package),
                    Family::Apart(_) => format!("\ntool {}\n", program.package),
                    _ => format!("\t{}\n", program.package),
                };
                assert!(module.go_mod.contains(&line), "{}", program.name);
            }
        }
    }

    #[test]
    fn versions_have_caches_of_their_own() {
        let [new, old] = [0, 1].map(|n| move |family| KUBERNETES[n].cache_key(family));
        assert!(new(Family::Kubernetes).starts_with("1.37.2-"));
        assert_ne!(new(Family::Kubernetes), old(Family::Kubernetes));
        assert_eq!(new(Family::Kubernetes), new(Family::Etcd));
    }

    #[test]
    fn what_is_no_part_of_a_control_plane_has_one_cache_each_for_all_versions() {
        let all = [Apart::ClientGo, Apart::Helm, Apart::HelmDocs, Apart::Promtool];
        let mut keys = std::collections::BTreeSet::new();
        for family in all {
            let [new, old] = [0, 1].map(|n| KUBERNETES[n].cache_key(Family::Apart(family)));
            assert!(new.starts_with(&format!("{}-", family.module().name)));
            assert_eq!(new, old);
            keys.insert(new);
        }
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn what_programs_say_of_their_version_is_what_their_modules_pin() {
        // Prometheus numbers its Go module v0.316.0 where its release is 3.16.0.
        for (family, said, pin) in [
            (Apart::Helm, "=v4.3.1", "helm.sh/helm/v4 v4.3.1\n"),
            (
                Apart::HelmDocs,
                "=1.14.2",
                "github.com/norwoodj/helm-docs v1.14.2 ",
            ),
            (
                Apart::Promtool,
                "=3.16.0",
                "github.com/prometheus/prometheus v0.316.0 ",
            ),
        ] {
            assert!(family.version_flag().ends_with(said), "{said}");
            assert!(family.module().go_mod.contains(pin), "{pin}");
        }
    }

    #[test]
    fn an_unknown_version_is_answered_with_the_known_ones() {
        let error = Kubernetes::named("1.12").unwrap_err().to_string();
        assert!(
            error.contains("1.12") && error.contains("1.37") && error.contains("1.36"),
            "{error}"
        );
    }
}
