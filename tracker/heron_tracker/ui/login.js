// The URL that `heron tracker` prints ends here: keeps the token behind the # for as long as the tab lives, and goes on
// to the list of topologies. The address with the token leaves the history.
const token = decodeURIComponent(location.hash.slice(1));
if (token) {
  sessionStorage.setItem("heron.token", token);
  location.replace("./");
} else {
  document.getElementById("note").textContent = "This address has no token: use the one that `heron tracker` printed.";
}
