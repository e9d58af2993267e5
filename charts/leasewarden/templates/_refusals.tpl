{{/* What cannot work is refused with all its reasons at once, before anything is installed. What is merely a wrong type
or word, values.schema.json refuses. */}}
{{- define "leasewarden.refusals" -}}
{{- $v := .Values -}}
{{- $no := list -}}
{{- $monitored := or $v.metrics.serviceMonitor.enabled $v.metrics.podMonitor.enabled -}}
{{- if and (eq $v.scope "Cluster") $v.namespaces -}}
{{- $no = append $no "namespaces: needs scope=Namespaced; with scope=Cluster the operator looks everywhere" -}}
{{- end -}}
{{- if and (eq $v.scope "Namespaced") $v.metrics.secure.enabled -}}
{{- $no = append $no "metrics.secure.enabled: needs scope=Cluster, because asking the API server who may read takes a ClusterRole" -}}
{{- end -}}
{{- if and (eq $v.scope "Namespaced") $v.rbac.aggregate -}}
{{- $no = append $no "rbac.aggregate: needs scope=Cluster, because only ClusterRoles can be aggregated" -}}
{{- end -}}
{{- if and (gt (int $v.replicaCount) 1) (not $v.operator.leaderElection.enabled) -}}
{{- $no = append $no "replicaCount: more than 1 needs operator.leaderElection.enabled=true, or all replicas would write" -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- $no = append $no "serviceAccount.name: must be given with serviceAccount.create=false, or every Pod of the namespace would get the operator's rights" -}}
{{- end -}}
{{- if eq (int $v.metrics.port) (int $v.health.port) -}}
{{- $no = append $no "metrics.port: must differ from health.port" -}}
{{- end -}}
{{- if not $v.metrics.enabled -}}
{{- range tuple "serviceMonitor" "podMonitor" "prometheusRule" "dashboard" "secure" -}}
{{- if (index $v.metrics .).enabled -}}
{{- $no = append $no (printf "metrics.%s.enabled: needs metrics.enabled=true" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled $v.metrics.podMonitor.enabled -}}
{{- $no = append $no "metrics.podMonitor.enabled: not together with metrics.serviceMonitor.enabled, or everything would be scraped and counted twice" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.service.enabled) -}}
{{- $no = append $no "metrics.serviceMonitor.enabled: needs metrics.service.enabled=true; metrics.podMonitor does without" -}}
{{- end -}}
{{- if and $v.metrics.podMonitor.enabled $v.metrics.secure.enabled (not $v.metrics.podMonitor.authorization) -}}
{{- $no = append $no "metrics.podMonitor.authorization: must be given with metrics.secure.enabled=true, because a PodMonitor cannot read Prometheus's own token" -}}
{{- end -}}
{{- if and $v.metrics.prometheusRule.enabled (not $monitored) (not $v.metrics.prometheusRule.job) -}}
{{- $no = append $no "metrics.prometheusRule.job: must be given where neither serviceMonitor nor podMonitor is enabled, or the alerts would select nothing" -}}
{{- end -}}
{{- if and $v.metrics.prometheusRule.enabled $monitored $v.metrics.prometheusRule.job -}}
{{- $no = append $no "metrics.prometheusRule.job: not together with serviceMonitor or podMonitor, which set the job themselves" -}}
{{- end -}}
{{- $min := $v.podDisruptionBudget.minAvailable -}}
{{- $max := $v.podDisruptionBudget.maxUnavailable -}}
{{- if and (ne $min nil) (ne $max nil) -}}
{{- $no = append $no "podDisruptionBudget: minAvailable or maxUnavailable, not both" -}}
{{- end -}}
{{- if and $v.podDisruptionBudget.enabled (gt (int $v.replicaCount) 1) -}}
{{- if or (eq (toString $min) "100%") (and (ne $min nil) (not (hasSuffix "%" (toString $min))) (ge (int $min) (int $v.replicaCount))) -}}
{{- $no = append $no (printf "podDisruptionBudget.minAvailable: %v of %v replicas lets no node be drained, ever" $min $v.replicaCount) -}}
{{- end -}}
{{- if has (toString $max) (list "0" "0%") -}}
{{- $no = append $no (printf "podDisruptionBudget.maxUnavailable: %v lets no node be drained, ever" $max) -}}
{{- end -}}
{{- end -}}
{{- if not $v.worker.role.create -}}
{{- range tuple "namespaces" "serviceAccounts" -}}
{{- if index $v.worker . -}}
{{- $no = append $no (printf "worker.%s: needs worker.role.create=true" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- $inNamespace := dict -}}
{{- range $v.worker.leases -}}
{{- $namespace := default $.Release.Namespace .namespace -}}
{{- $key := printf "%s/%s" $namespace .name -}}
{{- if hasKey $seen $key -}}
{{- $no = append $no (printf "worker.leases: %s is listed twice" $key) -}}
{{- end -}}
{{- $_ := set $seen $key true -}}
{{- $_ := set $inNamespace $namespace true -}}
{{- if and (not .stream) (or (gt (len .name) 52) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .name)) (regexMatch "-x[a-z2-7]{10}$" .name)) -}}
{{- $no = append $no (printf "worker.leases: %s needs its stream, because no stream of that very name has a Lease of that name" .name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.worker.leases $v.worker.role.create -}}
{{- range include "leasewarden.workerNamespaces" . | fromJsonArray -}}
{{- if not (hasKey $inNamespace .) -}}
{{- $no = append $no (printf "worker.leases: names no Lease in namespace %s, whose workers could then lock nothing" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.flowControl.enabled (not $v.worker.serviceAccounts) (not $v.flowControl.serviceAccounts) -}}
{{- $no = append $no "flowControl.enabled: needs worker.serviceAccounts or flowControl.serviceAccounts, or it would know no lock traffic" -}}
{{- end -}}
{{- if gt (int $v.flowControl.handSize) (int $v.flowControl.queues) -}}
{{- $no = append $no "flowControl.handSize: at most flowControl.queues" -}}
{{- end -}}
{{- range $v.extraArgs -}}
{{- $flag := regexFind "^-(-[a-z-]+|[a-z])" . -}}
{{- if has $flag (list "--namespace" "-n" "--discovery" "--status-policy" "--status-writes-per-second" "--leader-election" "--leader-election-lease-name" "--leader-election-namespace" "--leader-election-ttl" "--metrics-bind-address" "--metrics-secure" "--metrics-cert-dir" "--health-probe-bind-address" "--events" "--log" "--log-format") -}}
{{- $no = append $no (printf "extraArgs: %s is set by the chart's own values, which other objects follow" $flag) -}}
{{- end -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- if or (has .name (list "POD_NAME" "POD_NAMESPACE" "POD_UID")) (hasPrefix "LEASEWARDEN_" .name) -}}
{{- $no = append $no (printf "extraEnv: %s is set by the chart's own values, which other objects follow" .name) -}}
{{- end -}}
{{- end -}}
{{- if $no -}}
{{- fail (printf "\n\nThese values cannot work:\n  - %s\n" (join "\n  - " $no)) -}}
{{- end -}}
{{- end -}}
