{{- define "penstock.name" -}}
{{- $name := .Values.fullnameOverride | default .Release.Name -}}
{{- if gt (len $name) 45 }}{{ fail (printf "name %s: has %d characters, at most 45 fit: set fullnameOverride" $name (len $name)) }}{{ end -}}
{{- $name -}}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ include "penstock.name" . }}
{{- end }}

{{- define "penstock.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "penstock.selector" . | nindent 2 }}
{{- end }}

{{- define "penstock.token" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "penstock.name" .)) }}
{{- end }}

{{- define "penstock.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- /* Faults that a schema cannot find. */ -}}
{{- define "penstock.check" -}}
{{- $replicas := int .Values.replicas -}}
{{- if and .Release.IsInstall (gt $replicas 0) (lt $replicas (int .Values.expect)) -}}
{{- fail (printf "expect: a new cluster waits for %d pods, but replicas is %d: set expect to %d as well" (int .Values.expect) $replicas $replicas) -}}
{{- end -}}
{{- $voters := $replicas -}}
{{- if gt $voters 5 }}{{ $voters = 5 }}{{ end -}}
{{- if and .Values.podDisruptionBudget.enabled (ge $replicas 3) (gt (int .Values.podDisruptionBudget.maxUnavailable) (div (sub $voters 1) 2 | int)) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: %d would take the majority of %d voters: at most %d" (int .Values.podDisruptionBudget.maxUnavailable) $voters (div (sub $voters 1) 2)) -}}
{{- end -}}
{{- end }}

{{- define "penstock.listen" -}}
{{- if eq .Values.listenAddress "::" }}[::]{{ else }}{{ .Values.listenAddress }}{{ end -}}
{{- end }}
