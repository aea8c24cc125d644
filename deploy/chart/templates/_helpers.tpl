{{- define "mneme.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "mneme.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mneme.labels" -}}
{{ include "mneme.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The parts, in the order in which requests go through them: command, port, and the metric of what is in flight. */}}
{{- define "mneme.parts" -}}
webmemory: {command: webmemory, port: 8080, metric: mneme_runs_running}
apiserver: {command: apiserver, port: 8081, metric: mneme_apiserver_runs_running}
gateway: {command: proxy, port: 8082, metric: mneme_http_requests_in_flight}
{{- end }}

{{- /* The names by which the services are called beside those that mneme takes anyway. */}}
{{- define "mneme.hosts" -}}
{{- $hosts := dig "http" "allowed_hosts" list .Values.config }}
{{- if .Values.ingress.host }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end }}
{{- range $part := list "webmemory" "gateway" }}
{{- $name := printf "%s-%s.%s" (include "mneme.name" $) $part $.Release.Namespace }}
{{- $hosts = concat $hosts (list $name (print $name ".svc") (print $name ".svc.cluster.local")) }}
{{- end }}
{{- toJson (uniq $hosts) }}
{{- end }}
