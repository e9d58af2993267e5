#!/usr/bin/env bash
# Makes the image without a container engine: an OCI layout with one uncompressed layer, as a tar that `ctr images
# import`, `skopeo copy oci-archive:…` and `crane push` take. The same files make the same digest.
#
#   hack/image.sh FILE NAME PROGRAM [entrypoint...]
#
# FILE is written, NAME is the image's name, PROGRAM the only file in it, put into /usr/local/bin.
set -euo pipefail

file=${1:?the file to write} name=${2:?the name of the image} program=${3:?the program that is to be in it}
shift 3
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml" | head -1)
revision=${LEASEWARDEN_REVISION:-unknown}
case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) architecture=$(uname -m) ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
blobs=$folder/layout/blobs/sha256
mkdir -p "$blobs" "$folder/root/usr/local/bin"

# Adds a file as a blob; prints its digest and size.
blob() { # file
    local sum
    sum=$(sha256sum "$1" | cut -d' ' -f1)
    mv "$1" "$blobs/$sum"
    printf '"digest":"sha256:%s","size":%d' "$sum" "$(stat -c %s "$blobs/$sum")"
}

install -m 0755 "$program" "$folder/root/usr/local/bin/"
tar --create --file "$folder/layer" --directory "$folder/root" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime=@0 --format=ustar usr
layer=$(blob "$folder/layer")
diff_id=${layer#*:\"} diff_id=${diff_id%%\"*}
entrypoint="\"/usr/local/bin/$(basename "$program")\""
for word in "$@"; do
    entrypoint+=",\"$word\""
done
cat >"$folder/config" <<JSON
{"architecture":"$architecture","os":"linux","config":{"User":"65532:65532","Entrypoint":[$entrypoint],"Labels":{"org.opencontainers.image.title":"leasewarden","org.opencontainers.image.description":"One leader per change stream on Kubernetes","org.opencontainers.image.source":"https://github.com/leasewarden/leasewarden","org.opencontainers.image.licenses":"Apache-2.0","org.opencontainers.image.version":"$version","org.opencontainers.image.revision":"$revision"}},"rootfs":{"type":"layers","diff_ids":["$diff_id"]}}
JSON
config=$(blob "$folder/config")
cat >"$folder/manifest" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar",$layer}]}
JSON
manifest=$(blob "$folder/manifest")
cat >"$folder/layout/index.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",$manifest,"annotations":{"io.containerd.image.name":"$name","org.opencontainers.image.ref.name":"${name##*:}"}}]}
JSON
echo '{"imageLayoutVersion":"1.0.0"}' >"$folder/layout/oci-layout"
mkdir -p "$(dirname "$file")"
tar --create --file "$file.new" --directory "$folder/layout" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime=@0 --format=ustar blobs index.json oci-layout
mv "$file.new" "$file"
digest=${manifest#*:\"} digest=${digest%%\"*}
echo "$name@$digest, $(($(stat -c %s "$file") / 1024)) kB, $(gzip -c "$file" | wc -c | awk '{ print int($1 / 1024) }') kB compressed: $file"
