//! One leader per change stream on Kubernetes.
