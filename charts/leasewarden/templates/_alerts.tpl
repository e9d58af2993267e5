{{/* The alerts, as a YAML list. Takes the matcher of the operator's series, `job="…"`.

Series of streams are those of the replica that leads; for an instant of a hand-over two may have them, hence the
aggregations. What Prometheus writes in its own braces is written {{ "{{" }} … }} here. */}}
{{- define "leasewarden.alerts" -}}
- alert: LeasewardenNoLeader
  expr: max by (namespace, name, stream) (leasewarden_stream_held{ {{- . -}} }) == 0
  for: 5m
  labels:
    severity: warning
  annotations:
    summary: Nobody leads the stream {{ "{{ $labels.stream }}" }}
    description: >-
      For 5 minutes no instance has led the stream {{ "{{ $labels.stream }}" }} (ChangeStreamLeader {{ "{{ $labels.namespace }}/{{ $labels.name }}" }}),
      so nobody processes it.
- alert: LeasewardenLeaderFlapping
  expr: sum by (namespace, name, stream) (increase(leasewarden_stream_transitions_total{ {{- . -}} }[10m])) > 5
  labels:
    severity: warning
  annotations:
    summary: The leader of the stream {{ "{{ $labels.stream }}" }} changes again and again
    description: >-
      The stream {{ "{{ $labels.stream }}" }} (ChangeStreamLeader {{ "{{ $labels.namespace }}/{{ $labels.name }}" }}) has changed its leader
      {{ "{{ $value | printf \"%.0f\" }}" }} times in 10 minutes.
- alert: LeasewardenOperatorDown
  expr: absent(leasewarden_operator_leader{ {{- . -}} } == 1)
  for: 5m
  labels:
    severity: warning
  annotations:
    summary: No Leasewarden operator writes
    description: >-
      For 5 minutes no replica of the operator has led, or none was scraped. Leaders of streams go on; what
      `kubectl get csl` shows grows old, and the other alerts are blind.
- alert: LeasewardenOperatorBlind
  expr: >-
    min by (resource) (leasewarden_watch_up{ {{- . -}} } and on (instance) leasewarden_operator_leader{ {{- . -}} } == 1) == 0
  for: 2m
  labels:
    severity: warning
  annotations:
    summary: The Leasewarden operator cannot watch {{ "{{ $labels.resource }}" }}
    description: >-
      For 2 minutes the operator that writes has had no watch of {{ "{{ $labels.resource }}" }}. What `kubectl get csl` shows is marked as not
      known to be true (Ready is not True). Leaders of streams go on.
- alert: LeasewardenStatusWritesThrottled
  expr: sum(increase(leasewarden_status_writes_suppressed_total{ {{- . -}} ,reason="throttled"}[10m])) > 0
  for: 15m
  labels:
    severity: info
  annotations:
    summary: The Leasewarden operator leaves EXPIRES out
    description: >-
      For 15 minutes the operator has held back status writes that only move the time of expiry ({{ "{{ $value | printf \"%.0f\" }}" }} in 10 minutes).
      Changes of leader are not held back. EXPIRES is absent where it would be past.
{{- end -}}
