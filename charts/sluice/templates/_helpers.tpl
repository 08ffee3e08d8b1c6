{{/* Helpers have no branches, so that test/chart can record the branches of the templates. */}}

{{- define "sluice.name" -}}
{{ printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "sluice.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "sluice.name" .) }}
{{- end }}

{{/* Labels of the operator's pods. NetworkPolicies admit pods with these labels to the gateways' status. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Reference of an image. Argument: a list of the root context and the image's name in values. */}}
{{- define "sluice.image" -}}
{{ $images := (first .).Values.images -}}
{{ $image := index $images (last .) -}}
{{ $image.registry | default $images.registry }}/{{ $image.repository }}:{{ coalesce $image.tag $images.tag (first .).Chart.AppVersion }}
{{- end }}

{{/* Image of the speaker: the operator's, unless images.speaker sets a tag. */}}
{{- define "sluice.speakerImage" -}}
{{ ternary (include "sluice.image" (list . "operator")) (include "sluice.image" (list . "speaker")) (empty .Values.images.speaker.tag) }}
{{- end }}

{{/* Security contexts that pass PodSecurity restricted. */}}
{{- define "sluice.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Labels as a selector: a=b,c=d. */}}
{{- define "sluice.commas" -}}
{{ toYaml . | replace "\"" "" | replace ": " "=" | replace "\n" "," }}
{{- end }}
