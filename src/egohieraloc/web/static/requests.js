// Requests to the server.

// A request that gives JSON, or fails with the server's own words.
export async function call(method, path, body) {
  let response;
  try {
    response = await fetch(path, { method, body });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 204) return null;
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}

// Like `call` for a large file, telling how much of it was sent.
export function send(path, file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.loaded / event.total);
    request.onload = () => {
      if (request.status === 201) resolve(request.response);
      else reject(new Error(request.response?.error || `The server said ${request.status}.`));
    };
    request.onerror = () => reject(new Error("The video could not be sent. Is the server still running?"));
    request.send(file);
  });
}
