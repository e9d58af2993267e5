# The program, static, on nothing else. `hack/image.sh` makes the same image without a container engine; both compile by
# hack/static.sh.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg REVISION="$(git rev-parse HEAD)" -t leasewarden .

FROM rust:1.95-bookworm AS build
WORKDIR /build
RUN cargo install --locked cargo-auditable@0.7.7
COPY . .
ARG REVISION=unknown
RUN LEASEWARDEN_REVISION=$REVISION hack/static.sh /out

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="leasewarden" \
      org.opencontainers.image.description="One leader per change stream on Kubernetes" \
      org.opencontainers.image.source="https://github.com/leasewarden/leasewarden" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /out/leasewarden /usr/local/bin/leasewarden
# A number: the kubelet cannot tell whether a name is root.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/leasewarden"]
