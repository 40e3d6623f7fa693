//! Storing an object: whole where it is small, in pieces where it is not.

use std::io::{self, Read};

use aws_sdk_s3::config::Builder;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;

use super::S3;
use super::client::timeouts;
use super::failure::Failure;
use crate::blob::{Body, Key, check_size};

/// The size of a piece, which is what an upload holds in memory: a larger object is uploaded in several. S3 takes
/// 10,000 pieces of an object.
const PIECE: usize = 16 << 20;

/// Stores a body, holding no more than a piece of it in memory.
pub(super) fn store(s3: &S3, key: &Key, body: Body<'_>) -> io::Result<()> {
    match body {
        Body::Bytes(bytes) if bytes.len() < PIECE => store_whole(s3, key, Bytes::copy_from_slice(bytes)),
        Body::Bytes(mut bytes) => store_read(s3, key, &mut bytes, None),
        Body::Reader(reader, announced) => store_read(s3, key, reader, announced),
    }
}

fn store_read(s3: &S3, key: &Key, reader: &mut dyn Read, announced: Option<u64>) -> io::Result<()> {
    let mut piece = read_piece(reader)?;
    if piece.len() < PIECE {
        check_size(announced, piece.len() as u64)?;
        return store_whole(s3, key, piece);
    }
    let mut upload = Upload::start(s3, key)?;
    let mut size = 0;
    while !piece.is_empty() {
        size += piece.len() as u64;
        upload.add(piece)?;
        piece = read_piece(reader)?;
    }
    check_size(announced, size)?;
    upload.complete()
}

fn read_piece(reader: &mut dyn Read) -> io::Result<Bytes> {
    let mut piece = Vec::new();
    reader.take(PIECE as u64).read_to_end(&mut piece)?;
    Ok(piece.into())
}

fn store_whole(s3: &S3, key: &Key, bytes: Bytes) -> io::Result<()> {
    let limits = Builder::new().timeout_config(timeouts(bytes.len()));
    let request = s3.client.put_object().bucket(&s3.bucket).key(key.as_str());
    let request = request.body(ByteStream::from(bytes)).customize();
    let stored = s3.ask(request.config_override(limits).send());
    stored.map(|_| ()).map_err(Failure::into_io)
}

/// An upload in pieces, invisible until it is complete. Dropped before, it is aborted, so that the store does not
/// keep the pieces.
struct Upload<'a> {
    s3: &'a S3,
    key: &'a Key,
    id: String,
    parts: Vec<CompletedPart>,
    complete: bool,
}

impl<'a> Upload<'a> {
    fn start(s3: &'a S3, key: &'a Key) -> io::Result<Upload<'a>> {
        let request = s3.client.create_multipart_upload();
        let request = request.bucket(&s3.bucket).key(key.as_str());
        let started = s3.ask(request.send());
        let started = started.map_err(Failure::into_io)?;
        let id = started
            .upload_id
            .ok_or_else(|| io::Error::other("the server gives the upload no id"))?;
        Ok(Upload {
            s3,
            key,
            id,
            parts: Vec::new(),
            complete: false,
        })
    }

    fn add(&mut self, piece: Bytes) -> io::Result<()> {
        let number = i32::try_from(self.parts.len() + 1).map_err(io::Error::other)?;
        let limits = Builder::new().timeout_config(timeouts(piece.len()));
        let request = self.s3.client.upload_part();
        let request = request.bucket(&self.s3.bucket).key(self.key.as_str());
        let request = request.upload_id(&self.id).part_number(number);
        let request = request.body(ByteStream::from(piece)).customize();
        let stored = self.s3.ask(request.config_override(limits).send());
        let stored = stored.map_err(Failure::into_io)?;
        let part = CompletedPart::builder().part_number(number);
        self.parts.push(part.set_e_tag(stored.e_tag).build());
        Ok(())
    }

    fn complete(mut self) -> io::Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let request = self.s3.client.complete_multipart_upload();
        let request = request.bucket(&self.s3.bucket).key(self.key.as_str());
        let request = request.upload_id(&self.id).multipart_upload(parts);
        let completed = self.s3.ask(request.send());
        completed.map_err(Failure::into_io)?;
        self.complete = true;
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        let request = self.s3.client.abort_multipart_upload();
        let request = request.bucket(&self.s3.bucket).key(self.key.as_str());
        if let Err(failure) = self.s3.ask(request.upload_id(&self.id).send()) {
            tracing::debug!(
                key = self.key.as_str(),
                "an unfinished upload stays behind: {}",
                failure.into_io()
            );
        }
    }
}
