{{/* Names, labels, and lists that several templates need. */}}

{{- define "leasewarden.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* A DNS label of at most 52 characters: what follows it still makes a name, and it names a Lease as it stands. */}}
{{- define "leasewarden.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* For objects that have no namespace, or are in somebody else's: two releases of one name must not meet there. */}}
{{- define "leasewarden.globalName" -}}
{{- printf "%s.%s" (include "leasewarden.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "leasewarden.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "leasewarden.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "leasewarden.selectorLabels" -}}
app.kubernetes.io/name: {{ include "leasewarden.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Takes the context, the component, and more labels. What the chart selects by nobody overrides. */}}
{{- define "leasewarden.labels" -}}
{{- $root := index . 0 -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/name" (include "leasewarden.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/component" (index . 1)
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/part-of" "leasewarden"
  "app.kubernetes.io/managed-by" $root.Release.Service
-}}
{{- toYaml (merge $own (index . 2) $root.Values.commonLabels) -}}
{{- end -}}

{{/* Takes the context and a dict, and prints `annotations:` if there are any. */}}
{{- define "leasewarden.annotations" -}}
{{- $root := index . 0 -}}
{{- with merge (dict) (index . 1) $root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "leasewarden.image" -}}
{{- with .Values.image -}}
{{- .repository -}}
{{- if or .tag (not .digest) }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "leasewarden.electionLease" -}}
{{- default (include "leasewarden.fullname" .) .Values.operator.leaderElection.leaseName -}}
{{- end -}}

{{/* The namespaces of `scope: Namespaced`, as a JSON list. */}}
{{- define "leasewarden.namespaces" -}}
{{- default (list .Release.Namespace) .Values.namespaces | toJson -}}
{{- end -}}

{{/* Where workers get a Role, as a sorted JSON list. */}}
{{- define "leasewarden.workerNamespaces" -}}
{{- $all := .Values.worker.namespaces -}}
{{- if not $all -}}
{{- /* Named Leases say where workers are; who names none has them where the operator looks. */ -}}
{{- if .Values.worker.leases -}}
{{- $all = list -}}
{{- else if eq .Values.scope "Namespaced" -}}
{{- $all = include "leasewarden.namespaces" . | fromJsonArray -}}
{{- else -}}
{{- $all = list .Release.Namespace -}}
{{- end -}}
{{- end -}}
{{- range concat .Values.worker.serviceAccounts .Values.worker.leases -}}
{{- $all = append $all (default $.Release.Namespace .namespace) -}}
{{- end -}}
{{- $all | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* What a worker may do: takes the names of Leases, or none. */}}
{{- define "leasewarden.workerRules" -}}
{{- $root := index . 0 -}}
{{- $leases := index . 1 -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  {{- if $leases }}
  resourceNames:
    {{- toYaml $leases | nindent 4 }}
  verbs: [get, update]
  {{- else }}
  # `create` cannot be limited by name: `worker.leases` is the way without it.
  verbs: [get, create, update]
  {{- end }}
{{- if $root.Values.worker.role.watch }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  {{- with $leases }}
  resourceNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{/* What the operator may do where it looks. */}}
{{- define "leasewarden.operatorRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch]
- apiGroups: [leasewarden.dev]
  resources: [changestreamleaders]
  {{- /* Without discovery nothing is created. What an earlier operator has discovered may still have to go. */}}
  verbs: [get, list, watch{{ if .Values.operator.discovery }}, create{{ end }}, delete]
- apiGroups: [leasewarden.dev]
  resources: [changestreamleaders/status]
  verbs: [update]
{{- if .Values.operator.events }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- end -}}

{{/* The `job` of the operator's series. */}}
{{- define "leasewarden.job" -}}
{{- default (printf "%s/%s" .Release.Namespace (include "leasewarden.fullname" .)) .Values.metrics.prometheusRule.job -}}
{{- end -}}

{{/* What ServiceMonitor and PodMonitor have in common: takes the context and the monitor's values. */}}
{{- define "leasewarden.endpoint" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
port: metrics
path: /metrics
# The streams' own namespaces must stay: by default Prometheus writes that of the operator in their place.
honorLabels: true
{{- with $monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- if $root.Values.metrics.secure.enabled }}
scheme: https
tlsConfig:
  {{- toYaml (default (dict "insecureSkipVerify" true) $monitor.tlsConfig) | nindent 2 }}
{{- with $monitor.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
relabelings:
  # What the alerts select by.
  - targetLabel: job
    replacement: {{ printf "%s/%s" $root.Release.Namespace (include "leasewarden.fullname" $root) }}
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
