//! An instance id from what Kubernetes tells a container of its Pod (the Downward API).

use crate::lock::{InstanceId, InvalidInput};

/// The Pod's name or uid is not in the environment, or makes no instance id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DownwardApiError {
    /// A variable is not set, or empty.
    #[error(
        "environment variable {variable} is not set; add it to the container in the Pod's template:\n\n\
         env:\n- name: {variable}\n  valueFrom:\n    fieldRef:\n      fieldPath: {field}\n"
    )]
    Missing {
        /// Which.
        variable: &'static str,
        /// The Pod's field that it is to have.
        field: &'static str,
    },
    /// The values make no instance id.
    #[error("the variables POD_NAME and POD_UID make no instance id")]
    Invalid(#[source] InvalidInput),
}

impl InstanceId {
    /// `POD-NAME_POD-UID`, from the environment variables `POD_NAME` and `POD_UID`: who reads a Lease sees the Pod, and a Pod of a
    /// `StatefulSet` that is replaced under its old name is somebody else. (The namespace is no part of it; it is the Lease's.)
    ///
    /// ```yaml
    /// env:
    /// - name: POD_NAME
    ///   valueFrom: { fieldRef: { fieldPath: metadata.name } }
    /// - name: POD_UID
    ///   valueFrom: { fieldRef: { fieldPath: metadata.uid } }
    /// ```
    ///
    /// All processes of a Pod, and a container before and after its restart, have the same id. The
    /// [coordinator](crate::election) tells them apart by term; who calls the lock service itself uses
    /// [`InstanceId::unique`] or [`Claim::Term`](crate::Claim::Term) where that matters.
    ///
    /// # Errors
    /// [`DownwardApiError`], which says what to add to the Pod's template.
    pub fn from_downward_api() -> Result<Self, DownwardApiError> {
        from_variables(|variable| std::env::var(variable).ok())
    }
}

fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<InstanceId, DownwardApiError> {
    let read = |name, field| {
        variable(name)
            .filter(|value| !value.is_empty())
            .ok_or(DownwardApiError::Missing {
                variable: name,
                field,
            })
    };
    let (name, uid) = (
        read("POD_NAME", "metadata.name")?,
        read("POD_UID", "metadata.uid")?,
    );
    InstanceId::new(format!("{name}_{uid}")).map_err(DownwardApiError::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f8b8d0e-5e1c-4a57-9d3a-3b1f3c1d2e4f";

    fn of(variables: &[(&str, &str)]) -> Result<InstanceId, DownwardApiError> {
        from_variables(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_pods_name_and_uid_make_its_id() {
        let id = of(&[("POD_NAME", "orders-0"), ("POD_UID", UID)]).unwrap();
        assert_eq!(id.as_str(), format!("orders-0_{UID}"));
    }

    #[test]
    fn a_variable_that_is_missing_or_empty_is_named_with_what_to_add() {
        for (variables, variable, field) in [
            (&[("POD_UID", UID)] as &[_], "POD_NAME", "metadata.name"),
            (
                &[("POD_NAME", "orders-0"), ("POD_UID", "")],
                "POD_UID",
                "metadata.uid",
            ),
        ] {
            let error = of(variables).unwrap_err();
            assert_eq!(error, DownwardApiError::Missing { variable, field });
            let text = error.to_string();
            let snippet =
                format!("env:\n- name: {variable}\n  valueFrom:\n    fieldRef:\n      fieldPath: {field}\n");
            assert!(text.contains(&snippet), "{text}");
        }
    }

    #[test]
    fn values_that_make_no_id_are_an_error() {
        let error = of(&[("POD_NAME", "a\nb"), ("POD_UID", UID)]).unwrap_err();
        assert!(matches!(error, DownwardApiError::Invalid(_)));
    }
}
