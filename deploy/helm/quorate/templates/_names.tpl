{{- define "quorate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The name of a voter, whose number counts from 1. */}}
{{- define "quorate.voter" -}}
quorate-quorum-{{ sub .number 1 }}.quorate-quorum.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{/* Lines of a configuration file. A number from a values file has no decimal point. */}}
{{- define "quorate.lines" -}}
{{- range $key, $value := . }}
{{ $key | quote }} = {{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ $value | toJson }}{{ end }}
{{- end }}
{{- end }}

{{- define "quorate.quorum.toml" -}}
# Every voter; its number comes with --set.
"cluster.id" = "{{ .Values.clusterId }}"
"data.dir" = "/var/lib/quorate/quorum"
# All voters of the first start. Later changes of the quorum (add-voter, remove-voter) live in its own metadata.
"quorum.voters" = "{{ range $n := untilStep 1 (int (add1 .Values.quorum.replicas)) 1 }}{{ $name := include "quorate.voter" (dict "number" $n "root" $) }}{{ if gt $n 1 }},{{ end }}{{ $n }}@{{ $name }}:7001/7101{{ end }}"
"security.protocol" = "SSL"
"ssl.truststore.location" = "/certs/truststore.pem"
"metrics.listener" = "0.0.0.0:7201"
{{- include "quorate.lines" .Values.quorum.config }}
{{- end }}

{{- define "quorate.broker.toml" -}}
# Every broker; its number, its addresses and its rack come with --set.
"log.dir" = "/var/lib/quorate/broker"
"quorum.bootstrap.servers" = "{{ range $n := untilStep 1 (int (add1 .Values.quorum.replicas)) 1 }}{{ $name := include "quorate.voter" (dict "number" $n "root" $) }}{{ if gt $n 1 }},{{ end }}{{ $name }}:7101{{ end }}"
"quorum.security.protocol" = "SSL"
"quorum.ssl.truststore.location" = "/certs/truststore.pem"
"grpc.listener" = "0.0.0.0:9192"
"replication.port" = 9194
"metrics.listener" = "0.0.0.0:9195"
{{- include "quorate.lines" .Values.broker.config }}
{{- end }}
