{{- define "flashd.labels" -}}
app.kubernetes.io/name: flashd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "flashd.metadata" -}}
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "flashd.labels" . | nindent 4 }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "flashd.config" -}}
{{- $own := dict "model" .Values.model.path "host" "0.0.0.0" "port" 8000 "drain-delay" .Values.drainDelay "drain-timeout" .Values.drainTimeout -}}
{{- if gt (int .Values.gpus) 0 }}{{ $_ := set $own "device" "cuda" }}{{ end -}}
{{- if gt (int .Values.gpus) 1 }}{{ $_ := set $own "tensor-parallel-size" (int .Values.gpus) }}{{ end -}}
{{- if .Values.apiKeys.secret }}{{ $_ := set $own "api-key-file" "/run/flashd-keys/api-keys" }}{{ end -}}
{{- range $given, $_ := .Values.options }}{{ $name := replace "_" "-" $given }}
{{- if eq $name "api-key" }}{{ fail "options.api-key: it would be readable in a ConfigMap; a Secret has the keys, and apiKeys.secret its name" }}{{ end -}}
{{- if hasKey $own $name }}{{ fail (printf "options.%s: the chart sets it from a value of its own" $name) }}{{ end }}{{ end -}}
{{- merge $own .Values.options | toYaml -}}
{{- end }}
{{- define "flashd.picker" -}}
{{ .Values.inferencePool.endpointPicker.service | default (printf "%s-epp" .Release.Name) }}
{{- end }}
{{- define "flashd.picker-labels" -}}
app.kubernetes.io/name: endpoint-picker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "flashd.picker-metadata" -}}
metadata:
  name: {{ include "flashd.picker" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "flashd.picker-labels" . | nindent 4 }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
